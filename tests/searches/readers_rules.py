"""A consumer by hand, with its own version, isolation level, limits and perhaps a session, and what it may see."""

from __future__ import annotations

import select
import time
from typing import Any

from raw_client import RawClient, request_frame
from readers_world import PARTITIONS, TOPICS, Life, World

from penstock.protocol import messages
from penstock.protocol.batch import iterate_batches, read_records

VERSIONS = (4, 6, 7, 9, 11, 12, 12, 12, 13, 15, 16, 18)
LIMITS = (1, 150, 1000, 50_000, 1 << 20)
LONG_POLL_MS = 60_000
PROMPT_SECONDS = 20.0  # a third of a long poll: whoever gets nothing until then hangs
FETCH = messages.api("fetch").load_all_versions()

Place = tuple[str, int]


class Reader:
    def __init__(self, world: World) -> None:
        self.world = world
        self.draw = world.draw
        self.begin()

    def begin(self) -> None:
        """Another consumer in its place."""
        draw = self.draw
        self.client = RawClient(self.world.port)
        self.version = draw.choice(VERSIONS)
        self.committed = draw.randrange(2)
        self.wants_session = self.version >= 7 and draw.random() < 0.7
        self.limit, self.partition_limit = draw.choice(LIMITS), draw.choice(LIMITS)
        self.max_wait_ms = draw.choice((0, 20, LONG_POLL_MS, LONG_POLL_MS))
        share = draw.choice((0.1, 0.3, 0.8))
        every = [(name, index) for name in TOPICS for index in range(PARTITIONS)]
        self.places: list[Place] = [place for place in every if draw.random() < share] or [("plain", 0)]
        self.lives: dict[Place, Life] = {}
        self.positions: dict[Place, int] = {}
        for place in self.places:
            self._go_to(place, 0)
        self._new_session()
        self.waits = False

    def _new_session(self) -> None:
        self.session_id, self.epoch = 0, 0 if self.wants_session else -1
        self.moved = set(self.places)

    def _go_to(self, place: Place, offset: int) -> None:
        self.lives[place] = self.world.lives[place[0]]
        self.positions[place] = offset

    def hang_up(self) -> None:
        self.client.socket.close()
        self.begin()

    # Asking --------------------------------------------------------------------------------------------------------

    def ask(self, max_wait_ms: int | None = None) -> None:
        named = [place for place in self.places if place in self.moved or not self.session_id]
        request = FETCH.Request(
            max_wait_ms=self.max_wait_ms if max_wait_ms is None else max_wait_ms,
            min_bytes=1, max_bytes=self.limit, session_id=self.session_id, session_epoch=self.epoch,
            isolation_level=self.committed, topics=list(self._topics(self.version, named, self.partition_limit)),
        )  # fmt: skip
        self.client.send(request_frame("fetch", self.version, request))
        self.waits, self.asked_at = True, time.monotonic()
        self.named, self.moved = self.moved, set()

    def _topics(self, version: int, places: list[Place], limit: int) -> Any:
        by_life: dict[Life, list[int]] = {}
        for place in places:
            by_life.setdefault(self.lives[place], []).append(place[1])
        for life, indexes in by_life.items():
            partitions = [
                FETCH.FetchPartition(
                    partition=index, fetch_offset=self.positions[(life.name, index)], partition_max_bytes=limit
                )
                for index in indexes
            ]
            name = {"topic": life.name} if version < 13 else {"topic": "", "topic_id": life.topic_id}
            yield FETCH.FetchTopic(partitions=partitions, **name)

    def answered(self, within_seconds: float = 0.0) -> bool:
        return bool(select.select([self.client.socket], [], [], within_seconds)[0])

    def look_whether_it_hangs(self) -> None:
        """A consumer without any history is told of something that this one, which waits, is not told of."""
        if not self.waits or self.world.limited or self.max_wait_ms < LONG_POLL_MS:
            return
        version = 17 if self.version >= 13 else 12
        topics = list(self._topics(version, self.places, 1 << 20))
        request = FETCH.Request(
            max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, session_id=0, session_epoch=-1,
            isolation_level=self.committed, topics=topics,
        )  # fmt: skip
        with RawClient(self.world.port) as fresh:
            answer = fresh.call("fetch", version, request)
        if any(told.error_code or told.records for topic in answer.responses for told in topic.partitions):
            self.insist_on_an_answer()

    def insist_on_an_answer(self) -> None:
        if not self.answered(PROMPT_SECONDS):
            self._differs(f"hangs at {self.positions}")
            self.hang_up()

    # What it is told -----------------------------------------------------------------------------------------------

    def _differs(self, what: str) -> None:
        kind = f"version {self.version} committed={self.committed} session={self.session_id}"
        self.world.differences.append(f"{kind}: {what}")

    def take(self) -> None:
        answer = self.client.read_response("fetch", self.version)[1]
        self.waits = False
        if answer.error_code:
            if answer.error_code not in (70, 71):
                self._differs(f"error {answer.error_code}")
            self._new_session()
            return
        if self.wants_session and answer.session_id:
            self.session_id, self.epoch = answer.session_id, self.epoch + 1
        elif self.session_id:
            self._new_session()
        if answer.throttle_time_ms:
            self.moved |= self.named
            if answer.responses:
                self._differs("records with a pause")
        for topic in answer.responses:
            name = self.world.by_id[topic.topic_id].name if self.version >= 13 else topic.topic
            for told in topic.partitions:
                if self._take_partition((name, told.partition_index), told):
                    return

    def _take_partition(self, place: Place, told: Any) -> bool:
        """Whether the reader began anew, because its topic did."""
        life = self.lives[place]
        if told.error_code:
            self.moved.add(place)
            if told.error_code == 1:
                self._go_to(place, self.world.log_start(*place))
            elif told.error_code in (3, 5, 6, 100):
                self.hang_up()
                return True
            elif told.error_code != 29 or self._rights_are(None):
                self._differs(f"{place}: error {told.error_code}")
            return False
        records = bytes(told.records or b"")
        if not records:
            return False
        if life is not self.world.lives[life.name] and self.version < 13:
            self.hang_up()  # one that goes by names cannot know whose records these are
            return True
        if self._rights_are(place[0]):
            self._differs(f"{place}: what it may not read")
        self._read(place, life, told, records)
        return False

    def _rights_are(self, forbidden: str | None) -> bool:
        """Since before it asked."""
        return self.world.forbidden == forbidden and self.asked_at > self.world.rights_changed_at

    def _read(self, place: Place, life: Life, told: Any, records: bytes) -> None:
        position = asked = self.positions[place]
        bound = told.last_stable_offset if self.committed else told.high_watermark
        aborted = sorted((one.first_offset, one.producer_id) for one in told.aborted_transactions or ())
        hidden: set[int] = set()
        seen: set[int] = set()
        for header in iterate_batches(records):
            if header.last_offset < asked or header.last_offset >= bound:
                self._differs(f"{place}: {header.base_offset}–{header.last_offset} of {asked}–{bound}")
            while aborted and aborted[0][0] <= header.last_offset:
                hidden.add(aborted.pop(0)[1])
            position = max(position, header.next_offset)
            if header.is_control:
                hidden.discard(header.producer_id)
                continue
            skipped = header.is_transactional and header.producer_id in hidden
            for record in read_records(records[header.position : header.position + header.size]):
                seen.add(record.offset)
                self._check(place, life, record.offset, bytes(record.value or b""), skipped)
        if position == asked:
            self._differs(f"{place}: no whole batch in {len(records)} bytes")
        if life.keeps_all:
            stored = life.values[place[1]]
            missed = [
                at for at in range(max(asked, life.starts[place[1]]), position) if at in stored and at not in seen
            ]
            if missed:
                self._differs(f"{place}: {missed} are missing")
        self.positions[place] = position
        self.moved.add(place)

    def _check(self, place: Place, life: Life, offset: int, value: bytes, skipped: bool) -> None:
        where = f"{place} at {offset}: {value[:20]!r}"
        number, index, transaction = (int(part) for part in value.split(b"|")[:3])
        if (number, index) != (life.number, place[1]):
            self._differs(f"{where} of another topic or partition")
        elif life.values[index].get(offset) != value:
            self._differs(f"{where}, but {life.values[index].get(offset, b'')[:20]!r} was stored")
        fate = self.world.fates.get(transaction)
        if self.committed and fate is not None and skipped != (fate == "aborted"):
            self._differs(f"{where} of a transaction that is {fate}, skipped={skipped}")
        if self.committed and fate == "open":
            self._differs(f"{where} of a transaction that is open")
