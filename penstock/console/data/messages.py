"""Messages of a topic: a page from any position, a search with progress and a stop, a live tail, producing.

What a role may not see of a record is masked before anything filters, shows or downloads it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from penstock.client.errors import BrokerUnreachable, ConnectionLost, KafkaError
from penstock.console.data import formats
from penstock.console.data.shown import WHOLE_BYTES, shown
from penstock.console.data.viewer import Viewer
from penstock.console.formats import decoders, encode
from penstock.console.policy import masked, masks_as_data
from penstock.console.search import pool as searches
from penstock.console.search.wanted import Wanted, predicate
from penstock.operate import admin
from penstock.operate.errors import ExitCode, UserError, usage_error
from penstock.operate.positions import parse_time
from penstock.operate.record_writer import record_from_object
from penstock.pipelines.admin import write
from penstock.protocol.batch import InvalidBatch, read_records
from penstock.protocol.committed_batches import committed_batches
from penstock.protocol.errors import error_name
from penstock.protocol.records import InvalidRecords, Record

Key = tuple[str, int]
MOST_SHOWN = 1_000
FETCH_BYTES = 4 << 20
TAIL_WAIT_MS = 1_000


@dataclass
class Progress:
    """What a search has done so far; the reader may stop it at any time."""

    total: int = 0
    read: int = 0
    found: int = 0
    done: bool = False
    waits: bool = False
    """For a process: others search."""
    stop: threading.Event = field(default_factory=threading.Event)


def check(_viewer: Viewer, wanted: Wanted) -> None:
    """Raises for a filter that is none."""
    predicate(wanted)


def search(viewer: Viewer, topic: str, wanted: Wanted, progress: Progress) -> Iterator[list[dict[str, Any]]]:
    """Messages that are wanted, in portions as they are found, until there are enough or the end is reached.

    From the newest the search goes backwards, window by window; otherwise forwards. A page without a filter is read
    here; a search has a process of its own.
    """
    predicate(wanted)
    reader = Reader(viewer, topic, wanted.partitions)
    limit = max(1, min(wanted.limit, MOST_SHOWN))
    question = reader.question(wanted, limit)
    progress.total = sum(end - start for start, end in question["spans"].values())
    portions = _searched(viewer, question, progress) if wanted.filters else _page(reader, wanted, limit, progress)
    for rows in portions:
        viewer.require("viewer")
        progress.found += len(rows)
        yield rows
    progress.done = True


def _page(reader: Reader, wanted: Wanted, limit: int, progress: Progress) -> Iterator[list[dict[str, Any]]]:
    backwards = wanted.start == "newest"
    windows = reader.backwards(limit) if backwards else reader.forwards(reader.positions(wanted.start))
    for window, step in windows:
        progress.read += step
        window.sort(key=lambda pair: (pair[1].timestamp, pair[1].offset), reverse=backwards)
        yield [
            shown(key[0], key[1], record, decoders=reader.decoders) for key, record in window[: limit - progress.found]
        ]
        if progress.found >= limit or progress.stop.is_set():
            return


def _searched(viewer: Viewer, question: dict[str, Any], progress: Progress) -> Iterator[list[dict[str, Any]]]:
    def waits() -> None:
        progress.waits = True

    for answer in searches.pool.ask(viewer.user.name, question, progress.stop, waits):
        progress.waits = False
        progress.read += answer["read"]
        yield answer["rows"]


def messages(viewer: Viewer, topic: str, wanted: Wanted) -> list[dict[str, Any]]:
    """One page of messages, newest first from the newest, else oldest first."""
    rows = [row for portion in search(viewer, topic, wanted, Progress()) for row in portion]
    if wanted.start == "newest":
        rows.sort(key=lambda row: (row["timestamp_ms"], row["offset"]), reverse=True)
    return rows


def message(viewer: Viewer, topic: str, partition: int, offset: int) -> dict[str, Any]:
    """One message whole (up to a megabyte), by its address."""
    record = raw_message(viewer, topic, partition, offset)
    return shown(topic, partition, record, WHOLE_BYTES, formats.decoders(viewer, topic))


def raw_message(viewer: Viewer, topic: str, partition: int, offset: int) -> Record:
    """The record itself, masked as the viewer must see it: what downloads are made of."""
    reader = Reader(viewer, topic, (partition,))
    key = (topic, partition)
    if reader.starts[key] <= offset < reader.ends[key]:
        for record in reader.read(key, offset, offset + 1):
            if record.offset == offset:
                return record
    hint = f"{topic}-{partition} holds {reader.starts[key]} to {reader.ends[key] - 1}; some may be compacted away"
    raise UserError(f"there is no message {topic}-{partition} at {offset}", hint, ExitCode.NOT_FOUND)


def tail(viewer: Viewer, topic: str, wanted: Wanted, stop: threading.Event) -> Iterator[list[dict[str, Any]]]:
    """Messages as they come, in portions, empty ones too; ends when told, and with an error when the topic goes.

    A cluster that goes away and comes back costs only the time between: the tail goes on where it was.
    """
    accepts = predicate(wanted)
    reader = Reader(viewer, topic, wanted.partitions)
    positions = dict(reader.ends) if wanted.start == "newest" else reader.positions(wanted.start)
    while not stop.is_set():
        viewer.require("viewer")
        try:
            records = list(reader.follow(positions, TAIL_WAIT_MS))
        except (BrokerUnreachable, ConnectionLost):
            records = []
            stop.wait(1.0)
        wanted_ones = [(key, record) for key, record in records if accepts(topic, key[1], record)]
        found = [shown(topic, key[1], record, decoders=reader.decoders) for key, record in wanted_ones]
        yield found[-MOST_SHOWN:]


def produce(
    viewer: Viewer, topic: str, row: dict[str, Any], partition: int = -1, *, encoded: bool = False
) -> dict[str, int]:
    """One record, as `consume --json` prints it: key, value, headers, with encodings for bytes.

    With `encoded` key and value are JSON that the topic's formats turn into bytes.
    """
    found = viewer.topic(topic)
    key, value, headers, _, _ = record_from_object(row, "the message")
    if encoded:
        viewer.require("editor")
        chosen = formats.unmasked(viewer, topic)
        key, value = encode(chosen, topic, "key", key), encode(chosen, topic, "value", value)
    if partition == -1:
        partition = partition_for(key, sorted(found.partitions))
    if partition not in found.partitions:
        raise usage_error(f"{topic} has no partition {partition}", f"it has {len(found.partitions)}")
    with viewer.change(viewer.role_to_change(topic), "topic.produce", topic, partition=partition) as session:
        offset = session.client.run(
            lambda client: write(client, topic, partition, [(key, value, tuple(headers or ()))])
        )
    return {"partition": partition, "offset": offset}


def partition_for(key: bytes | None, partitions: list[int]) -> int:
    """As Java's producer chooses: by murmur2 of the key; without one, whichever."""
    if key is None:
        return partitions[time.time_ns() % len(partitions)]
    return partitions[(_murmur2(key) & 0x7FFFFFFF) % len(partitions)]


def _murmur2(data: bytes) -> int:
    length, m = len(data), 0x5BD1E995
    h = (0x9747B28C ^ length) & 0xFFFFFFFF
    for i in range(0, length - length % 4, 4):
        k = int.from_bytes(data[i : i + 4], "little") * m & 0xFFFFFFFF
        k = (k ^ (k >> 24)) * m & 0xFFFFFFFF
        h = (h * m & 0xFFFFFFFF) ^ k
    rest = data[length - length % 4 :]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & 0xFFFFFFFF
    h = (h ^ (h >> 13)) * m & 0xFFFFFFFF
    return h ^ (h >> 15)


class Reader:
    """Committed records of a topic's partitions, as the viewer may see them."""

    def __init__(self, viewer: Viewer, topic: str, partitions: tuple[int, ...]) -> None:
        found = viewer.topic(topic)
        viewer.insist_on_reading(topic)
        unknown = set(partitions) - set(found.partitions)
        if unknown:
            raise UserError(f"{topic} has no partition {min(unknown)}", code=ExitCode.NOT_FOUND)
        self._session = viewer.session
        self._topic = topic
        self._masks = viewer.policy.masks_of(viewer.user.role, topic)
        self._formats = formats.unmasked(viewer, topic)
        self.keys: list[Key] = [(topic, index) for index in sorted(partitions or found.partitions)]
        self.starts = self._offsets(admin.EARLIEST)
        self.ends = self._offsets(admin.LATEST)

    @cached_property
    def decoders(self) -> Any:
        return decoders(self._formats)

    def _offsets(self, at: int) -> dict[Key, int]:
        answers = self._session.client.list_offsets(dict.fromkeys(self.keys, at), read_committed=True)
        for key, answer in answers.items():
            if answer.error_code:
                raise UserError(f"{key[0]}-{key[1]} cannot be read: {error_name(answer.error_code)}")
        return {key: answer.offset for key, answer in answers.items()}

    def positions(self, start: str) -> dict[Key, int]:
        text = start.strip() or "oldest"
        if text == "oldest":
            return dict(self.starts)
        if text.isdigit() and len(text) < 12:
            return {key: min(max(int(text), self.starts[key]), self.ends[key]) for key in self.keys}
        found = self._offsets(parse_time(text))
        return {key: offset if offset >= 0 else self.ends[key] for key, offset in found.items()}

    def question(self, wanted: Wanted, most: int | None, form: str = "rows") -> dict[str, Any]:
        """What a process is asked: all it needs to know, with what it must hide."""
        backwards = wanted.start == "newest" and most is not None
        starts = self.starts if wanted.start == "newest" else self.positions(wanted.start)
        return {
            "properties": dict(self._session.properties),
            "topic": self._topic,
            "spans": {key[1]: (starts[key], max(starts[key], self.ends[key])) for key in self.keys},
            "backwards": backwards,
            "most": most,
            "wanted": asdict(wanted),
            "masks": masks_as_data(self._masks),
            "formats": self._formats,
            "form": form,
        }

    def forwards(self, positions: dict[Key, int]) -> Iterator[tuple[list[tuple[Key, Record]], int]]:
        for key in self.keys:
            position = positions[key]
            while position < self.ends[key]:
                records, following = self._fetch(key, position)
                yield [(key, record) for record in records if record.offset < self.ends[key]], following - position
                if following == position:
                    break
                position = following

    def backwards(self, width: int) -> Iterator[tuple[list[tuple[Key, Record]], int]]:
        """Windows from the ends to the starts, larger ones the longer it goes on."""
        tops = dict(self.ends)
        while any(tops[key] > self.starts[key] for key in self.keys):
            window, step = [], 0
            for key in self.keys:
                bottom = max(self.starts[key], tops[key] - width)
                window += [(key, record) for record in self.read(key, bottom, tops[key])]
                step += tops[key] - bottom
                tops[key] = bottom
            yield window, step
            width = min(width * 4, 100_000)

    def read(self, key: Key, start: int, end: int) -> Iterator[Record]:
        position = start
        while position < end:
            records, following = self._fetch(key, position)
            yield from (record for record in records if record.offset < end)
            if following == position:
                return
            position = following

    def follow(self, positions: dict[Key, int], wait_ms: int) -> Iterator[tuple[Key, Record]]:
        try:
            fetched = self._session.client.fetch(
                positions,
                read_committed=True,
                max_wait_ms=wait_ms,
                max_bytes=FETCH_BYTES,
                partition_max_bytes=FETCH_BYTES,
            )
        except KafkaError as error:  # it is not known any more where its leader is
            raise UserError(f"{error.what} cannot be read any more: {error_name(error.code)}") from error
        for key, answer in fetched.items():
            if answer.error_code == 1:  # retention went past us
                positions[key] = answer.log_start_offset if answer.log_start_offset >= 0 else self.starts[key]
                continue
            if answer.error_code:
                raise UserError(f"{key[0]}-{key[1]} cannot be read any more: {error_name(answer.error_code)}")
            records, positions[key] = self._records(key, answer, positions[key])
            yield from ((key, record) for record in records)

    def _fetch(self, key: Key, position: int) -> tuple[list[Record], int]:
        answer = self._session.client.fetch(
            {key: position},
            read_committed=True,
            max_wait_ms=100,
            max_bytes=FETCH_BYTES,
            partition_max_bytes=FETCH_BYTES,
        )[key]
        if answer.error_code:
            raise UserError(f"{key[0]}-{key[1]} cannot be read: {error_name(answer.error_code)}")
        return self._records(key, answer, position)

    def _records(self, key: Key, answer: Any, position: int) -> tuple[list[Record], int]:
        """(committed records from the position on, where to go on)."""
        found: list[Record] = []
        following = position
        try:
            for header, shown in committed_batches(answer.records, answer.aborted_transactions):
                if shown:
                    records = read_records(answer.records, header)
                    found += [masked(r, self._masks) for r in records if r.offset >= position]
                following = header.last_offset + 1
        except (InvalidBatch, InvalidRecords) as error:
            raise UserError(f"{key[0]}-{key[1]} at {following} holds bytes that are no records: {error}") from error
        return found, following
