"""What a shard of a coordinator is made of: its state machine, the writes it decides, and what waits on it.

The runtime (runtime.py) moves these around; state machines return `Write`s and implement `StateMachine`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar

from penstock.coordinator.loader import Row
from penstock.coordinator.shard_log import Marker, Producer, Record
from penstock.coordinator.timers import TimerQueue
from penstock.protocol.errors import ErrorCode

__all__ = ["EXCLUSIVE", "Command", "Done", "Parked", "Shard", "ShardState", "ShardTimers", "StateMachine", "Write"]

MAX_BATCH_BYTES = 512 * 1024
RECORD_OVERHEAD_BYTES = 24  # lengths, delta and attributes of a record at their longest, and a share of the header
BATCH_OVERHEAD_BYTES = 64

EXCLUSIVE = "\0exclusive"

Done = Callable[[ErrorCode, Any], None]


@dataclass(slots=True)
class Write:
    """What a command decided: records to append, and what to answer once they are committed."""

    records: list[Record] = field(default_factory=list)
    response: Any = None
    producer: Producer | None = None
    """The transaction to which the records belong; they then get a batch of their own."""
    guard: Any = None
    """With a producer: that of the verification which these records went through (KIP-890)."""
    replay: bool = True
    """False where the command has already put soft state in place (classic groups), which a failure callback undoes."""
    on_committed: Callable[[], None] | None = None
    on_failed: Callable[[ErrorCode], None] | None = None
    on_refused: Callable[[ErrorCode], None] | None = None
    """Before `on_failed`, and only if nothing got into the log: here a command may undo what it had put in place."""
    marker: Marker | None = None
    """End this transaction here, instead of appending records."""
    divisible: bool = False
    """The records may go out in several batches, each replayed on its own: tombstones, of which there may be many."""
    after_commit: bool = False
    """Without records: answer only when all that the command may have seen is committed."""


class StateMachine(Protocol):
    """What a shard holds. Built empty by the runtime's factory for each term of leadership."""

    def replay(self, record: Record, offset: int, producer: Producer) -> None:
        """Apply a record; `producer` is NO_PRODUCER unless the record belongs to a transaction."""

    def replay_rows(self, rows: list[Row], base_offset: int, producer: Producer) -> None:
        """Apply many records at once: loading."""

    def replay_marker(self, producer: Producer, commit: bool, offset: int) -> None:
        """A transaction of this producer ended in this partition."""

    def on_loaded(self, now_ms: int) -> None:
        """Everything is replayed, the shard answers from now on: set the timers."""

    def on_unloaded(self) -> None:
        """Leadership is gone: answer whoever is parked inside the machine with NOT_COORDINATOR."""


M = TypeVar("M", bound=StateMachine)
Command = Callable[[Any, int], Write]


class ShardState(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"


@dataclass(slots=True)
class Parked:
    last_offset: int
    deadline_ms: float
    write: Write
    done: Done


class ShardTimers:
    """The `Timers` that a state machine is given."""

    def __init__(self, queue: TimerQueue, now_ms: Callable[[], float], rearm: Callable[[], None]) -> None:
        self._queue = queue
        self._now_ms = now_ms
        self._rearm = rearm

    def schedule(self, name: Hashable, delay_ms: float, key: Hashable, command: Callable[..., Any]) -> None:
        if self._queue.schedule(name, self._now_ms() + delay_ms, key, command):
            self._rearm()

    def cancel(self, name: Hashable) -> None:
        self._queue.cancel(name)

    def pending(self, name: Hashable) -> bool:
        return name in self._queue


class Shard(Generic[M]):
    """One partition that this broker leads."""

    def __init__(self, partition: int, leader_epoch: int) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.state = ShardState.LOADING
        self.machine: M
        self.timers = TimerQueue()
        self.timer_retries_ms: dict[Hashable, float] = {}  # of timers whose last write was refused: the next pause
        self.pending: list[tuple[Write, Done]] = []
        self.dirty: set[Hashable] = set()
        self.deferred: deque[tuple[Hashable, Command, Done]] = deque()
        self.parked: deque[Parked] = deque()
        self.overdue: deque[tuple[int, Callable[[], None]]] = deque()
        """What shall happen when an offset is committed, although its client has been told that it took too long."""
        self.expires = False  # a timer looks after what is parked
        self.flush_scheduled = False
        self.flushing = False
        self.last_appended_offset = -1
        self.loaded_records = 0


def size_of(record: Record) -> int:
    return len(record.key) + len(record.value or b"") + RECORD_OVERHEAD_BYTES


def pieces_of(records: list[Record], max_bytes: int) -> Iterator[list[Record]]:
    """Cut records into batches of at most so many bytes; none is empty."""
    piece: list[Record] = []
    size = 0
    for record in records:
        record_bytes = size_of(record)
        if piece and size + record_bytes > max_bytes:
            yield piece
            piece, size = [], 0
        piece.append(record)
        size += record_bytes
    yield piece


def runs_of(pending: list[tuple[Write, Done]], max_bytes: int) -> Iterator[list[tuple[Write, Done]]]:
    """Cut the writes of a wake-up into batches: plain ones share one, transactions and markers stand alone."""
    run: list[tuple[Write, Done]] = []
    size = 0
    for item in pending:
        write = item[0]
        alone = write.producer is not None or write.marker is not None or write.divisible
        write_bytes = sum(map(size_of, write.records))
        if run and (alone or size + write_bytes > max_bytes):
            yield run
            run, size = [], 0
        if alone:
            yield [item]
        else:
            run.append(item)
            size += write_bytes
    if run:
        yield run
