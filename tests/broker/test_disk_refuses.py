"""A broker whose disk refuses single calls: nothing void is acknowledged, and what is sound is served."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from raw_client import RawClient, batch, ensure_topic, fetch_request, produce_request

import penstock
from penstock.protocol import messages
from penstock.protocol.codecs import Codec
from penstock.protocol.errors import ErrorCode


@pytest.fixture
def two_partitions(tmp_path: Path) -> Iterator[penstock.Broker]:
    with penstock.Broker(tmp_path / "data", num_partitions=2, compression_type="lz4") as running:
        ensure_topic(running.port, "t")
        yield running


class Refused:
    """Writes to one log fail while this is in force."""

    def __init__(self, patch: pytest.MonkeyPatch, name: str) -> None:
        self._name, self._pwrite = name, os.pwrite
        patch.setattr(os, "pwrite", self._write)

    def _write(self, fd: int, data: bytes, position: int) -> int:
        if self._name in str(Path(f"/proc/self/fd/{fd}").readlink()):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self._pwrite(fd, data, position)


@pytest.mark.parametrize("acks", [1, -1])
def test_a_produce_that_has_to_wait_for_a_thread_hears_of_its_first_partitions_failure(
    two_partitions: penstock.Broker, monkeypatch: pytest.MonkeyPatch, acks: int
) -> None:
    """The first is appended at once, the second must be opened in a thread: a write in between is the first one's."""
    request = produce_request("t", batch(b"small"), acks=acks)
    api = messages.api("produce").load_all_versions()
    large = batch(*[os.urandom(100) for _ in range(1500)], codec=Codec.GZIP)
    request.topic_data[0].partition_data.append(api.PartitionProduceData(index=1, records=large))
    with RawClient(two_partitions.port) as client:
        with monkeypatch.context() as patch:
            Refused(patch, "t-0/")
            first, second = client.call("produce", 9, request).responses[0].partition_responses
        assert (first.error_code, second.error_code) == (ErrorCode.KAFKA_STORAGE_ERROR, 0)
        assert first.base_offset == -1
        answer = client.call("fetch", 12, fetch_request("t", 0))
        assert not answer.responses[0].partitions[0].records
        again: Any = client.call("produce", 9, produce_request("t", batch(b"again"), acks=acks)).responses[0]
        assert (again.partition_responses[0].error_code, again.partition_responses[0].base_offset) == (0, 0)
