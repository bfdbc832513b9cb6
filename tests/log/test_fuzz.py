"""Whatever bytes a client sends as a batch: an answer, never an exception, and a log that stays readable."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.base.clock import ManualClock
from penstock.log.log import Log
from penstock.log.results import Origin
from penstock.log.verify import verify
from penstock.protocol.batch import build_batch
from penstock.protocol.codecs import Codec
from penstock.protocol.crc import crc32c
from penstock.protocol.records import new_record
from penstock.testing.log_tools import new_log

NOW = 1_700_000_000_000
CONFIGS: list[dict[str, object]] = [
    {},
    {"cleanup_compact": True},
    {"compression_type": "zstd"},
    {"message_timestamp_type": "LogAppendTime"},
    {"message_timestamp_before_max_ms": 1000, "segment_bytes": 5000},
]


@pytest.fixture(scope="module")
def logs() -> Iterator[list[Log]]:
    with tempfile.TemporaryDirectory() as folder:
        yield [new_log(Path(folder) / f"fuzz{i}-0", ManualClock(NOW), **config) for i, config in enumerate(CONFIGS)]


@st.composite
def mutated_batches(draw: st.DrawFn) -> bytes:
    """A sound batch with a few bytes changed, cut or added; mostly with a checksum that fits again."""
    records = [new_record(b"key", b"value" * draw(st.integers(0, 30)), NOW)] * draw(st.integers(1, 20))
    batch = bytearray(
        build_batch(
            records,
            codec=draw(st.sampled_from(Codec)),
            producer_id=draw(st.sampled_from([-1, 5])),
            producer_epoch=0,
            base_sequence=draw(st.integers(-1, 3)),
            transactional=draw(st.booleans()),
        )
    )
    for _ in range(draw(st.integers(0, 3))):
        if draw(st.booleans()):
            batch[draw(st.integers(0, min(len(batch), 80) - 1))] = draw(st.integers(0, 255))
        else:
            batch[draw(st.integers(0, len(batch) - 1))] = draw(st.integers(0, 255))
    how = draw(st.integers(0, 5))
    if how == 0:
        del batch[draw(st.integers(0, len(batch))) :]
    elif how == 1:
        batch += draw(st.binary(max_size=30))
    if how != 2 and len(batch) > 61:
        if how > 3:
            struct.pack_into(">i", batch, 8, len(batch) - 12)
            batch[16] = 2
            struct.pack_into(">q", batch, 0, 0)
        struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return bytes(batch)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batch=mutated_batches())
def test_mutated_batches(logs: list[Log], batch: bytes) -> None:
    for log in logs:
        end = log.log_end_offset
        result = log.append_as_leader(memoryview(batch), 0, NOW)
        if result.error:
            assert log.log_end_offset == end
        elif not result.duplicate:
            assert result.base_offset == end
            assert result.last_offset + 1 == log.log_end_offset > end
        log.write_staged()


@settings(max_examples=100, deadline=None)
@given(noise=st.binary(max_size=200))
def test_noise(logs: list[Log], noise: bytes) -> None:
    for log in logs:
        end = log.log_end_offset
        assert log.append_as_leader(noise, 0, NOW).error
        assert log.append_as_leader(noise, 0, NOW, Origin.CLIENT).error
        assert log.log_end_offset == end


def test_afterwards_every_log_is_readable(logs: list[Log]) -> None:
    for log in logs:
        log.write_staged()
        log.active.write_indexes()
        problems = list(verify(log.directory))
        assert problems == []
        for segment in log.segments:
            offsets = [header.base_offset for header in segment.headers()]
            assert offsets == sorted(set(offsets))
