"""Records out of topics with librdkafka: from any start, until any end, alone or as a member of a group."""

from __future__ import annotations

import gc
import os
import select
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

from penstock.operate import admin
from penstock.operate.errors import UserError, no_partition, usage_error
from penstock.operate.interrupts import Interrupts
from penstock.operate.positions import parse_partition_offsets

if TYPE_CHECKING:
    from penstock.operate.session import Session

BATCH = 10_000
FILE_BYTES = 1 << 20  # written at once to a file, which never makes us wait for a reader
PATIENCE_SECONDS = 8.0  # how long all brokers may be away before we give up
Key = tuple[str, int]


@dataclass
class Ends:
    """When to stop: after so many shown, at a time, or at the offsets that were the end when we began."""

    count: int = 0
    until_ms: int | None = None
    offsets: dict[Key, int] | None = None
    shown: int = 0
    reached: set[Key] = field(default_factory=set)


class Reader:
    """A librdkafka consumer on chosen partitions, or as a member of a group."""

    def __init__(
        self, session: Session, topics: list[str], partitions: list[int] | None, committed: bool, group: str | None
    ) -> None:
        from confluent_kafka import Consumer

        views = admin.matching(session, topics)
        self._session, self._group, self._committed = session, group, committed
        self.keys = [
            (view.name, index) for view in views for index in view.partitions if not partitions or index in partitions
        ]
        if not self.keys:
            known = [index for view in views for index in view.partitions]
            raise no_partition(", ".join(topics), min(partitions or [0]), known)
        settings: dict[str, Any] = {
            "group.id": group or "penstock-cli",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "auto.offset.reset": "latest",
            "fetch.message.max.bytes": 4 << 20,
            "queued.min.messages": 200_000,
            "queued.max.messages.kbytes": 262_144,
            "fetch.queue.backoff.ms": 10,  # a full queue is empty in less than librdkafka's second of rest
        }
        settings["error_cb"] = self._on_client_error
        if any(name.startswith("^") for name in topics) and not any(name.startswith(("^__", "__")) for name in topics):
            settings["topic.blacklist"] = "^__"  # what an expression means to us, it means to librdkafka in a group
        self._down_since: float | None = None
        self._topics = topics
        self._settings = settings
        self._make = Consumer
        self._consumer: Any = None
        self._position: dict[Key, int] = {}
        self._handled: dict[Key, int] = {}  # of a group: what the output has taken
        self._assigned: set[Key] | None = None  # of a group: what it gave us; None before it has
        self._interrupts = Interrupts()

    def __enter__(self) -> Reader:
        self._interrupts.take_over()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self._consumer is not None:
                with self._interrupts.held(ending=True):
                    self._commit()
                    self._consumer.close()
        finally:
            self._interrupts.give_back()

    def start(self, from_beginning: bool, from_ms: int | None, offsets: list[str] | None) -> None:
        from confluent_kafka import TopicPartition

        if self._group is not None:
            if from_ms is not None or offsets is not None:
                raise usage_error("a group starts where it has committed", "`penstock group reset` moves it")
            self._settings["auto.offset.reset"] = "earliest" if from_beginning else "latest"
            self._consumer = self._make(self._session.librdkafka(**self._settings))
            self._consumer.subscribe(self._topics, on_assign=self._on_assign, on_revoke=self._on_revoke)
            return
        starts = self._starts(from_beginning, from_ms, offsets)
        self._consumer = self._make(self._session.librdkafka(**self._settings))
        self._consumer.assign([TopicPartition(topic, index, starts[topic, index]) for topic, index in self.keys])
        self._position = dict(starts)

    def _starts(self, from_beginning: bool, from_ms: int | None, offsets: list[str] | None) -> dict[Key, int]:
        latest = {key: found for key, (found, _) in self._offsets(admin.LATEST).items()}
        if from_ms is not None:
            found = self._offsets(from_ms)
            return {key: found[key][0] if found[key][0] >= 0 else latest[key] for key in self.keys}
        earliest = {key: found for key, (found, _) in self._offsets(admin.EARLIEST).items()}
        if from_beginning:
            return earliest
        if offsets is None:
            return latest
        wanted = parse_partition_offsets(offsets, {index for _, index in self.keys}, ", ".join(self._topics))
        self.keys = [key for key in self.keys if key[1] in wanted]
        return {
            key: max(earliest[key], latest[key] + wanted[key[1]]) if wanted[key[1]] < 0 else wanted[key[1]]
            for key in self.keys
        }

    def _offsets(self, position: int) -> dict[Key, tuple[int, int]]:
        return admin.list_offsets(self._session, dict.fromkeys(self.keys, position), committed=self._committed)

    def end_offsets(self) -> dict[Key, int]:
        return {key: found for key, (found, _) in self._offsets(admin.LATEST).items()}

    def left_until(self, ends: Ends) -> int:
        """How many offsets lie between where we are and the ends: the whole of a progress bar."""
        return sum(max(0, end - self._position.get(key, 0)) for key, end in (ends.offsets or {}).items())

    def batches(self, ends: Ends) -> Iterator[list[Any]]:
        """Messages as they come, until an end is reached."""
        gc.set_threshold(20 * BATCH)  # messages form no cycles: a search for some during every batch is in vain
        if ends.offsets is not None:
            ends.reached = {key for key, end in ends.offsets.items() if self._position.get(key, -1) >= end}
        while not self._done(ends):
            size = min(BATCH, ends.count - ends.shown) if ends.count else BATCH
            with self._interrupts.held():
                messages = self._consumer.consume(size, 0.2)
            batch = messages if self._take_all(messages, ends) else self._take_each(messages, ends)
            if messages:
                self._down_since = None
            elif self._down_since is not None:
                self._insist_on_a_broker()
            if batch:
                yield batch
                if self._group is not None:
                    with self._interrupts.held():
                        self._commit()

    def hand_over(self, text: bytes, out: IO[bytes]) -> None:
        """Writes what was made of the last batch, which from then on counts as read by the group.

        A full disk stops it before that. Ctrl-C may come between two pieces, but never between the last one and the
        note that all of them are out: pieces are as small as a pipe takes without waiting.
        """
        try:
            descriptor = out.fileno()
        except OSError:  # no file behind it: somebody collects the output in memory
            out.write(text)
            self._note_handled()
            return
        piece = FILE_BYTES if stat.S_ISREG(os.fstat(descriptor).st_mode) else select.PIPE_BUF
        left = memoryview(text)
        while left:
            select.select([], [descriptor], [])
            with self._interrupts.held():
                left = left[os.write(descriptor, left[:piece]) :]
                if not left:
                    self._note_handled()
        if not text:
            self._note_handled()

    def _note_handled(self) -> None:
        self._handled.update(self._position)
        self._position = {}

    def _take_all(self, messages: list[Any], ends: Ends) -> bool:
        """Whether all are wanted, found without a look at each: most batches lie in the middle of what is read."""
        if not messages or ends.until_ms is not None:
            return False
        kind = type(messages[0])
        if any(map(kind.error, messages)):
            return False
        keys = zip(map(kind.topic, messages), map(kind.partition, messages), strict=True)
        last = dict(zip(keys, map(kind.offset, messages), strict=True))
        if ends.reached and not ends.reached.isdisjoint(last):
            return False
        known_ends = ends.offsets or {}
        if any(key in known_ends and offset >= known_ends[key] - 1 for key, offset in last.items()):
            return False
        self._position.update({key: offset + 1 for key, offset in last.items()})
        return True

    def _take_each(self, messages: list[Any], ends: Ends) -> list[Any]:
        taken = []
        for message in messages:
            error = message.error()
            if error is not None:
                self._on_error(message, error, ends)
            elif self._take(message, ends):
                taken.append(message)
        return taken

    def _take(self, message: Any, ends: Ends) -> bool:
        key = (message.topic(), message.partition())
        if key in ends.reached:
            return False
        offset = message.offset()
        if ends.until_ms is not None and message.timestamp()[1] >= ends.until_ms:
            ends.reached.add(key)
            return False
        if ends.offsets is not None:
            end = ends.offsets.get(key)
            if end is not None and offset >= end - 1:
                ends.reached.add(key)
                if offset >= end:
                    return False
        self._position[key] = offset + 1
        return True

    def _on_error(self, message: Any, error: Any, ends: Ends) -> None:
        if error.name() == "_PARTITION_EOF":
            # The last offsets may hold markers or compacted records: then the end shows only as this event.
            if ends.offsets is not None or ends.until_ms is not None:
                ends.reached.add((message.topic(), message.partition()))
            return
        if error.name() in ("_ALL_BROKERS_DOWN", "_TRANSPORT", "_RESOLVE"):
            raise self._session.unreachable(error.str())
        if error.fatal() or not error.retriable():
            raise UserError(error.str(), f"the client says {error.name()}")

    def _on_client_error(self, error: Any) -> None:
        if error.name() in ("_ALL_BROKERS_DOWN", "_TRANSPORT", "_RESOLVE") and self._down_since is None:
            self._down_since = time.monotonic()

    def _insist_on_a_broker(self) -> None:
        """A broker may restart under us; one that stays away is told."""
        from confluent_kafka import KafkaException

        assert self._down_since is not None
        if time.monotonic() - self._down_since < PATIENCE_SECONDS:
            return
        try:
            self._consumer.list_topics(self.keys[0][0], timeout=3)
            self._down_since = None
        except KafkaException as error:
            raise self._session.unreachable(error.args[0].str()) from error

    def _done(self, ends: Ends) -> bool:
        if ends.count and ends.shown >= ends.count:
            return True
        if ends.offsets is None and ends.until_ms is None:
            return False
        if self._group is None:
            return set(self.keys) <= ends.reached
        # Other members read the rest: our part is done when what we were given is.
        return self._assigned is not None and self._assigned <= ends.reached

    def _on_assign(self, _: Any, partitions: list[Any]) -> None:
        self._assigned = (self._assigned or set()) | {(p.topic, p.partition) for p in partitions}

    def _on_revoke(self, _: Any, partitions: list[Any]) -> None:
        left = (self._assigned or set()) - {(p.topic, p.partition) for p in partitions}
        self._assigned = left or None  # nothing at all: the next assignment is on its way

    def _commit(self) -> None:
        """Commit what was handled: with --group at least once, on Ctrl-C too."""
        from confluent_kafka import KafkaException, TopicPartition

        if self._group is None or not self._handled:
            return
        offsets = [TopicPartition(topic, index, offset) for (topic, index), offset in self._handled.items()]
        self._handled = {}
        try:
            self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            self._session.note(f"penstock: offsets were not committed: {error.args[0].str()}")
