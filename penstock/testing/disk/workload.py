"""A scripted life of a few logs, and what must be true of it afterwards, whatever the disk refused on the way.

Produces, transactions, rolls, flushes, truncation, compaction, deleted records, a topic deleted and made anew, a clean
stop, a kill. Everything runs in one thread and always in the same order, so that a call can be named by its number.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.base.clock import ManualClock
from penstock.base.settings import LogConfig
from penstock.log import checkpoints, compaction, maintenance, swap
from penstock.log.cleaner import assess, build_spec, drop_leftovers, verify
from penstock.log.log import Log
from penstock.log.log_manager import LogManager, ManagerSettings
from penstock.log.results import LogDirectoryFailed, LogWriteError, Origin
from penstock.protocol.batch import CONTROL_ABORT, build_batch, build_marker, iterate_batches, read_marker, read_records
from penstock.protocol.records import new_record

REFUSED = (LogWriteError, LogDirectoryFailed, OSError)
CONFIGS = {
    "plain": LogConfig(segment_bytes=700, index_interval_bytes=150, file_delete_delay_ms=0),
    "synced": LogConfig(segment_bytes=500, flush_messages=1, file_delete_delay_ms=0),
    "compacted": LogConfig(segment_bytes=500, cleanup_compact=True, cleanup_delete=False, file_delete_delay_ms=0),
    "gone": LogConfig(segment_bytes=500, file_delete_delay_ms=0),
}


class Violation(AssertionError):
    """A promise was broken."""


class Known:
    """What a log has acknowledged."""

    def __init__(self, topic_id: uuid.UUID) -> None:
        self.topic_id = topic_id
        self.acked: dict[int, bytes] = {}
        self.appended: dict[int, set[bytes]] = {}  # whatever was given that offset, acknowledged or not
        self.synced_end = 0
        self.start = 0
        self.doubtful_from: int | None = None  # a truncation to there failed half-way
        self.hidden: set[bytes] = set()  # values of transactions whose abort was acknowledged
        self.open: dict[int, list[bytes]] = {}


class Life:
    """The logs of one broker in a folder, and what its clients were told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = ManualClock()
        self.known: dict[str, Known] = {}
        self.manager: LogManager | None = None
        self._ids = 0
        self._sequence = 0
        self.epoch = 0
        self.refusals = 0

    # -- the broker

    def start(self) -> None:
        settings = ManagerSettings(recovery_threads=1)
        manager = LogManager(
            [self.folder], CONFIGS.__getitem__, self.clock, node_id=1, cluster_id="c", settings=settings
        )
        self.epoch += 1
        manager.start()
        manager.disk_work.stop()  # from now on at once, so that the order of calls is always the same
        self.manager = manager
        for log in list(manager.logs()):
            known = self.known.get(log.topic)
            if known is None or known.topic_id != log.topic_id:
                manager.delete(log.topic, log.partition)  # as the first image does with what is not assigned
            else:
                log.set_high_watermark(log.log_end_offset)

    def stop(self, clean: bool) -> None:
        if self.manager is not None:
            self.manager.stop(clean)
            self.manager = None

    def log(self, topic: str) -> Log | None:
        """The topic's log; begun if there is none. None while its folder is off line."""
        known, manager = self.known.get(topic), self.manager
        if known is None or manager is None or manager.failed_directories:
            return None
        found = manager.get(topic, 0)
        if found is not None and found.topic_id != known.topic_id:
            manager.delete(topic, 0)
        return manager.get_or_create(topic, 0, known.topic_id, CONFIGS[topic])

    # -- what clients ask for

    def attempt(self, step: Callable[[], None]) -> None:
        """A request that is refused is refused; life goes on. Only refusals count as such: the rest is a fault."""
        try:
            step()
        except REFUSED:
            self.refusals += 1
            for log in self.manager.logs() if self.manager is not None else ():
                log.voided = None  # whoever asked has heard of it

    def create(self, topic: str) -> None:
        self._ids += 1
        self.known[topic] = Known(uuid.UUID(int=self._ids))

        def step() -> None:
            self.log(topic)

        self.attempt(step)

    def delete(self, topic: str) -> None:
        del self.known[topic]
        manager = self.manager
        if manager is not None and not manager.failed_directories:
            self.attempt(lambda: manager.delete(topic, 0))

    def produce(self, topic: str, *pairs: tuple[bytes, bytes], producer: int = -1) -> None:
        self.attempt(lambda: self._produce(topic, pairs, producer))

    def _produce(self, topic: str, pairs: tuple[tuple[bytes, bytes], ...], producer: int) -> None:
        log = self.log(topic)
        if log is None:
            return
        known = self.known[topic]
        now_ms = self.clock.now_ms()
        fields: dict[str, Any] = {}
        if producer >= 0:
            entry = log.producers_state.entries.get(producer)
            sequence = 0 if entry is None else entry.last_sequence + 1
            fields = {
                "producer_id": producer,
                "producer_epoch": 0,
                "base_sequence": sequence,
                "transactional": True,
            }
        log.verify_transactions = False
        batch = build_batch([new_record(key, value, now_ms) for key, value in pairs], **fields)
        result = log.append_as_leader(batch, self.epoch, now_ms)
        if result.error:
            self.refusals += 1
            return
        for number, (_, value) in enumerate(pairs):
            known.appended.setdefault(result.base_offset + number, set()).add(value)
        if producer >= 0:  # in the log or not: it may not be seen once its abort is acknowledged
            known.open.setdefault(producer, []).extend(value for _, value in pairs)
        log.write_staged()
        if log.voided is not None:
            log.voided = None
            return
        log.set_high_watermark(log.log_end_offset)
        for number, (_, value) in enumerate(pairs):
            known.acked[result.base_offset + number] = value

    def end(self, topic: str, producer: int, commit: bool) -> None:
        """As a coordinator: again and again, until the marker is in."""
        self.attempt(lambda: self._end(topic, producer, commit))

    def _end(self, topic: str, producer: int, commit: bool) -> None:
        log = self.log(topic)
        if log is None:
            return
        known = self.known[topic]
        result = log.append_as_leader(
            build_marker(producer, 0, commit, 0, self.clock.now_ms()),
            self.epoch,
            self.clock.now_ms(),
            Origin.COORDINATOR,
        )
        if result.error:
            self.refusals += 1
            return
        log.set_high_watermark(log.log_end_offset)
        values = known.open.pop(producer, [])
        if not commit:
            known.hidden.update(values)

    def flush(self, topic: str) -> None:
        def step() -> None:
            log = self.log(topic)
            if log is not None:
                log.flush()
                self.known[topic].synced_end = log.recovery_point

        self.attempt(step)

    def checkpoint(self) -> None:
        manager = self.manager
        if manager is not None:
            self.attempt(manager.checkpoint_recovery_points)
            self.attempt(manager.checkpoint_high_watermarks)
            self.attempt(manager.checkpoint_log_starts)
            self.attempt(manager.tick)

    def truncate(self, topic: str, offset: int) -> None:
        def step() -> None:
            log = self.log(topic)
            if log is None or offset >= log.log_end_offset:
                return
            known = self.known[topic]
            known.doubtful_from = offset
            known.synced_end = min(known.synced_end, offset)
            try:
                log.truncate_to(offset)
            except LogWriteError as error:
                if not error.directory_failed:
                    known.doubtful_from = None
                raise
            known.doubtful_from = None
            known.acked = {at: value for at, value in known.acked.items() if at < offset}

        self.attempt(step)

    def delete_records(self, topic: str, offset: int) -> None:
        def step() -> None:
            log = self.log(topic)
            if log is not None and log.raise_log_start_offset(offset):
                self.known[topic].start = max(self.known[topic].start, log.log_start_offset)
                maintenance.delete_oldest(log, 0)

        self.attempt(step)
        self.checkpoint()

    def compact(self, topic: str) -> None:
        """What the cleaner does, without a process of its own."""

        def step() -> None:
            log, manager = self.log(topic), self.manager
            directory = None if log is None or manager is None else manager.directory_of(log)
            if log is None or directory is None:
                return
            key = (log.topic, log.partition)
            candidate = assess(log, directory.checkpoints.read(checkpoints.CLEANER_OFFSETS).get(key), 0)
            if candidate is None:
                return
            drop_leftovers(log.directory)
            try:
                done = compaction.compact(build_spec(candidate, self.clock.now_ms(), 1 << 20, 1e18))
                verify(log.directory, done.outputs)
                swap.replace_segments(log, done.outputs)
                directory.checkpoints.put(checkpoints.CLEANER_OFFSETS, key, done.next_dirty_offset)
            except OSError:
                drop_leftovers(log.directory)
                raise

        self.attempt(step)

    # -- the script

    def run(self) -> None:
        """All of it, once. Whatever is refused on the way is left out."""
        self.attempt(self.start)
        for topic in ("plain", "synced", "compacted", "gone"):
            self.create(topic)
        for number in range(8):
            self.produce("plain", (b"k", b"plain %d" % number + bytes(60)))
        self.produce("plain", (b"a", b"void 1"), (b"a", b"void 2"), producer=9)
        self.produce("plain", (b"c", b"kept 1"), producer=8)
        self.end("plain", 9, commit=False)
        self.end("plain", 8, commit=True)
        self.flush("plain")
        for number in range(4):
            self.produce("synced", (b"s", b"synced %d" % number + bytes(100)))
        self.checkpoint()
        for number in range(14):
            self.produce("compacted", (b"k%d" % (number % 3), b"value %d" % number + bytes(50)))
        self.compact("compacted")
        for number in range(6):
            self.produce("gone", (b"g", b"old %d" % number + bytes(70)))
        self.flush("gone")
        self.delete_records("gone", 4)
        self.delete("gone")
        self.create("gone")
        for number in range(3):
            self.produce("gone", (b"g", b"new %d" % number))
        self.truncate("plain", 5)
        self.produce("plain", (b"k", b"after the cut"))
        self.produce("plain", (b"a", b"void 3"), producer=9)
        self.end("plain", 9, commit=False)
        self.attempt(lambda: self.stop(clean=True))
        self.attempt(self.start)
        for topic in ("plain", "compacted", "gone"):
            for number in range(3):
                self.produce(topic, (b"k%d" % number, b"second life %d" % number + bytes(60)))
        self.compact("compacted")
        self.checkpoint()
        self.attempt(lambda: self.stop(clean=False))
        self.attempt(self.start)
        self.produce("plain", (b"k", b"third life"))

    def settle(self) -> None:
        """The disk is well again: everything must work, without a restart unless the folder has failed."""
        if self.manager is None or self.manager.failed_directories:
            self.stop(clean=False)
            self.start()
        assert self.manager is not None
        self.manager.tick()
        for topic, known in self.known.items():
            if known.doubtful_from is not None:
                log = self.log(topic)
                assert log is not None
                log.truncate_to(known.doubtful_from)
                known.acked = {at: v for at, v in known.acked.items() if at < log.log_end_offset}
                known.doubtful_from = None
            for producer in list(known.open):
                self._end(topic, producer, commit=False)
            self._produce(topic, ((b"settled", b"settled"),), -1)
        self.check()
        self.stop(clean=True)
        self.start()
        self.check()
        self.stop(clean=False)
        self.start()
        self.check()
        self.stop(clean=True)

    # -- what must be true

    def check(self) -> None:
        for topic, known in self.known.items():
            log = self.log(topic)
            if log is None:
                raise Violation(f"{topic} is off line")
            self._check_log(topic, log, known)

    def _check_log(self, topic: str, log: Log, known: Known) -> None:
        found = visible(log)
        if log.last_stable_offset != log.log_end_offset:
            raise Violation(f"{topic}: stable up to {log.last_stable_offset} of {log.log_end_offset}")
        seen = known.hidden.intersection(found.values())
        if seen:
            raise Violation(f"{topic}: aborted data is served: {sorted(seen)}")
        expected = {at: v for at, v in known.acked.items() if at >= max(known.start, log.log_start_offset)}
        if log.log_start_offset > max(known.start, 0):
            raise Violation(f"{topic}: begins at {log.log_start_offset} instead of {known.start}")
        if CONFIGS[topic].cleanup_compact:
            newest = max(expected, default=-1)
            expected = {at: v for at, v in expected.items() if at == newest}
        for offset, value in expected.items():
            if value in known.hidden:
                continue
            if found.get(offset) != value:
                raise Violation(f"{topic}: {value[:12]!r} was acknowledged at {offset}, there is {found.get(offset)!r}")


def visible(log: Log) -> dict[int, bytes]:
    """Offset → value, as a read_committed consumer sees them."""
    aborted = sorted(
        log.aborted_transactions(log.log_start_offset, log.last_stable_offset), key=lambda a: a.first_offset
    )
    skipping: set[int] = set()
    found: dict[int, bytes] = {}
    offset = log.log_start_offset
    while offset < log.last_stable_offset:
        data = log.read_bytes(offset, 1 << 20, log.last_stable_offset)
        if not data:
            break
        before = offset
        for header in iterate_batches(data):
            while aborted and aborted[0].first_offset <= header.last_offset:
                skipping.add(aborted.pop(0).producer_id)
            offset = max(offset, header.next_offset)
            if header.is_control:
                marker = read_marker(data, header)
                if marker is not None and marker.control_type == CONTROL_ABORT:
                    skipping.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in skipping):
                found.update((record.offset, record.value or b"") for record in read_records(data, header))
        if offset == before:
            break
    return found
