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
from penstock.protocol.batch import read_records
from penstock.protocol.codecs import Codec
from penstock.protocol.committed_batches import committed_batches
from penstock.protocol.errors import ErrorCode
from penstock.testing.log_tools import append, batch_of, end_transaction, new_log, read_all, reload

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
        self.open: dict[int, int] = {}  # producer id → first offset of its transaction; each has a producer of its own
        self.written_by: dict[int, int] = {}  # offset → producer id, of transactional records
        self.ended: list[tuple[int, int, int, bool]] = []  # producer id, first offset, marker, committed
        self.marker_times: dict[int, int] = {}
        self.transactions_at: dict[int, tuple[dict[int, int], int]] = {}  # by the first offset of a batch
        self.last_producer = 1

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
        self._remember()
        self.sequence += count
        self.rows += [(self.end + index, value, self.clock.now_ms()) for index in range(count)]
        self.end += count

    @rule(count=st.integers(1, 3), which=st.integers(0, 2))
    def append_to_a_transaction(self, count: int, which: int) -> None:
        """One of those that are open, or the first batch of a new one."""
        producers = sorted(self.open)
        if which < len(producers):
            producer_id = producers[which]
        else:
            producer_id = self.last_producer = self.last_producer + 1
        sequence = list(self.written_by.values()).count(producer_id)
        self.number += 1
        value = b"%d" % self.number
        guard = self.log.start_verification(producer_id, 0, sequence, False)
        batch = batch_of(
            self.log,
            *[(b"k", value)] * count,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=True,
        )
        result = self.log.append_as_leader(batch, self.epoch, self.clock.now_ms(), guard=guard)
        assert (result.error, result.base_offset) == (ErrorCode.NONE, self.end), result
        self.sequence_at[self.end] = self.sequence
        self._remember()
        self.open.setdefault(producer_id, self.end)
        for offset in range(self.end, self.end + count):
            self.rows.append((offset, value, self.clock.now_ms()))
            self.written_by[offset] = producer_id
        self.end += count

    @precondition(lambda self: self.open)
    @rule(which=st.integers(0, 2), commit=st.booleans())
    def end_a_transaction(self, which: int, commit: bool) -> None:
        producer_id = sorted(self.open)[which % len(self.open)]
        result = end_transaction(self.log, producer_id, commit=commit, epoch=self.epoch)
        assert (result.error, result.base_offset) == (ErrorCode.NONE, self.end), result
        self._remember()
        self.ended.append((producer_id, self.open.pop(producer_id), self.end, commit))
        self.marker_times[self.end] = self.clock.now_ms()
        self.end += 1

    def _remember(self) -> None:
        """What there was before the batch that begins at the end."""
        self.transactions_at[self.end] = (dict(self.open), len(self.ended))
        if not self.epochs or self.epochs[-1][0] != self.epoch:
            self.epochs.append((self.epoch, self.end))

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
        self.written_by = {offset: by for offset, by in self.written_by.items() if offset < boundary}
        self.marker_times = {offset: at for offset, at in self.marker_times.items() if offset < boundary}
        transactions, ended = self.transactions_at.get(boundary, (self.open, len(self.ended)))
        self.open, self.ended = dict(transactions), self.ended[:ended]
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
        # A transaction that lost its beginning may be forgotten, as in Kafka: its producer's next batch opens it again.
        highest = min([self.log.high_watermark, *self.open.values()])
        target = data.draw(st.integers(self.start, max(highest, self.start)))
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
    def committed_readers_see_what_is_committed(self) -> None:
        log = self.log
        stable = log.last_stable_offset
        assert stable <= log.high_watermark
        assert all(first >= stable for first in self.open.values() if first < log.high_watermark)
        hidden = {
            offset
            for offset, by in self.written_by.items()
            if any(by == producer_id and not committed for producer_id, _, _, committed in self.ended)
        }
        expected = [row[0] for row in self.rows if self.start <= row[0] < stable and row[0] not in hidden]
        places = [max(base, self.start) for base in log.segment_bases if base < stable]
        data = b"".join(log.read_bytes(place, 1 << 20, stable) for place in sorted(set(places)))
        aborted = [tuple(one) for one in log.aborted_transactions(self.start, stable)]
        batches = [header for header, is_shown in committed_batches(data, aborted) if is_shown]
        shown = [record.offset for header in batches for record in read_records(data, header)]
        assert [offset for offset in shown if offset >= self.start] == expected

    @invariant()
    def times_are_found(self) -> None:
        markers = [(offset, b"", at) for offset, at in self.marker_times.items()]
        expected = sorted(row for row in [*self.rows, *markers] if row[0] >= self.start)
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


LogAgainstModel.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
test_log_against_model = LogAgainstModel.TestCase
