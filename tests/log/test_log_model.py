"""The log against a model that is too simple to be wrong: a list of records."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.base.clock import ManualClock
from penstock.log import maintenance, retention
from penstock.log.results import OffsetOutOfRange
from penstock.log.verify import verify
from penstock.protocol.codecs import Codec
from penstock.protocol.errors import ErrorCode
from penstock.testing.log_tools import append, new_log, read_all, reload

Row = tuple[int, bytes, int]  # offset, value, timestamp


class LogAgainstModel(RuleBasedStateMachine):
    """Rules are what brokers do to a log; the invariant is what readers may rely on."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.clock = ManualClock()
        self.log = new_log(self.folder / "model-0", self.clock, segment_bytes=1200, index_interval_bytes=150)
        self.rows: list[Row] = []
        self.start = 0
        self.end = 0
        self.epochs: list[tuple[int, int]] = []
        self.epoch = 0
        self.sequence = 0
        self.sequence_at: dict[int, int] = {}  # by the first offset of a batch
        self.number = 0

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @rule(count=st.integers(1, 5), size=st.integers(0, 200), codec=st.sampled_from(Codec), step_ms=st.integers(0, 50))
    def append_some(self, count: int, size: int, codec: Codec, step_ms: int) -> None:
        self.clock.advance(step_ms)
        self.number += 1
        value = b"%d:" % self.number + bytes(size)
        result = append(
            self.log,
            *[(b"k", value)] * count,
            codec=codec,
            epoch=self.epoch,
            producer_id=1,
            producer_epoch=0,
            base_sequence=self.sequence,
        )
        assert result.error is ErrorCode.NONE, result
        assert result.base_offset == self.end
        self.sequence_at[self.end] = self.sequence
        self.sequence += count
        self.rows += [(self.end + index, value, self.clock.now_ms()) for index in range(count)]
        if not self.epochs or self.epochs[-1][0] != self.epoch:
            self.epochs.append((self.epoch, self.end))
        self.end += count

    @rule()
    def write(self) -> None:
        self.log.write_staged()

    @rule()
    def commit(self) -> None:
        self.log.write_staged()
        self.log.set_high_watermark(self.end)

    @rule()
    def new_leader_epoch(self) -> None:
        self.epoch += 1

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        if self.start >= self.end:
            return
        bases = sorted({offset for offset, _, _ in self.rows})
        offset = data.draw(st.sampled_from([base for base in bases if base >= self.start] or [self.end]))
        # A leader's epochs end at batch boundaries; so does what replication truncates to.
        boundary = self._batch_start(offset)
        if boundary < self.start:
            return
        self.log.truncate_to(boundary)
        self.rows = [row for row in self.rows if row[0] < boundary]
        self.epochs = [entry for entry in self.epochs if entry[1] < boundary]
        self.end = boundary
        # The producer repeats what was cut off, whether or not the log still knows the batch before it.
        self.sequence = self.sequence_at.get(boundary, self.sequence)
        known = self.log.producers_state.entries.get(1)
        assert known is None or known.last_sequence + 1 == self.sequence
        self.epoch += 1

    def _batch_start(self, offset: int) -> int:
        self.log.write_staged()
        for segment in self.log.segments:
            for header in segment.headers():
                if header.base_offset <= offset <= header.last_offset:
                    return header.base_offset
        return offset

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        target = data.draw(st.integers(self.start, max(self.log.high_watermark, self.start)))
        self.log.raise_log_start_offset(target)
        self.start = max(self.start, min(target, self.log.high_watermark))
        retention.enforce(self.log, self.clock.now_ms())
        assert self.log.log_start_offset == self.start

    @rule()
    def restart_cleanly(self) -> None:
        self.log.set_high_watermark(self.end)
        maintenance.close(self.log, clean=True)
        self.log = reload(self.log, clean=True, recovery_point=self.end, log_start=self.start, hw=self.end)

    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        self.log.write_staged()
        point = data.draw(st.integers(0, self.log.recovery_point))
        self.log = reload(self.log, clean=False, recovery_point=point, log_start=self.start)

    @rule()
    def flush(self) -> None:
        self.log.flush()
        assert self.log.recovery_point == self.end

    @invariant()
    def readers_see_exactly_the_model(self) -> None:
        log = self.log
        assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
        expected = [row for row in self.rows if row[0] >= self.start]
        found = [(record.offset, record.value, record.timestamp) for record in read_all(log, max_bytes=700)]
        assert found == expected
        assert isinstance(log.read(self.end + 1, 100), OffsetOutOfRange)
        if self.start:
            assert isinstance(log.read(self.start - 1, 100), OffsetOutOfRange)
        assert log.high_watermark <= self.end

    @invariant()
    def times_are_found(self) -> None:
        expected = [row for row in self.rows if row[0] >= self.start]
        if not expected:
            return
        for wanted in (expected[0][2], expected[len(expected) // 2][2], expected[-1][2]):
            first = next(row for row in expected if row[2] >= wanted)
            found = self.log.offset_for_timestamp(wanted)
            assert found is not None
            assert (found.offset, found.timestamp) == (first[0], first[2])
        assert self.log.offset_for_timestamp(expected[-1][2] + 1) is None

    @invariant()
    def epochs_end_where_the_next_begins(self) -> None:
        for index, (epoch, start) in enumerate(self.epochs):
            end = self.epochs[index + 1][1] if index + 1 < len(self.epochs) else self.end
            if start >= self.start:
                assert self.log.end_offset_for_epoch(epoch) == (epoch, end)

    @invariant()
    def files_are_sound(self) -> None:
        self.log.write_staged()
        self.log.active.write_indexes()
        assert list(verify(self.log.directory, records=True)) == []


LogAgainstModel.TestCase.settings = settings(max_examples=20, stateful_step_count=25, deadline=None)
test_log_against_model = LogAgainstModel.TestCase
