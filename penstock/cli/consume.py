"""`penstock consume`: read topics from any position, until any end, filtered, decoded and formatted."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import admin
from penstock.cli.errors import UserError, usage_error
from penstock.cli.positions import parse_partition_offsets, parse_time
from penstock.cli.record_format import compile_format, for_terminal, json_line
from penstock.cli.typed import command, new_app

if TYPE_CHECKING:
    from penstock.cli.session import Session

app = new_app("Read records: from any offset or time, decoded, filtered, formatted.", no_args_is_help=False)

BATCH = 10_000
PATIENCE_SECONDS = 8.0  # how long all brokers may be away before we give up
Key = tuple[str, int]


@command(app)
def consume(
    session: Session,
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC…", show_default=False)],
    from_beginning: Annotated[bool, typer.Option("--from-beginning", "-B", help="Start at the oldest record.")] = False,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="WHEN", help="Start at a time: 2026-11-01T12:00, 2h, 1d.")
    ] = None,
    offset: Annotated[
        list[str] | None,
        typer.Option("--offset", "-o", metavar="[PARTITION:]N", help="Start at an offset; negative: before the end."),
    ] = None,
    partition: Annotated[list[int] | None, typer.Option("--partition", help="Only this one; may be repeated.")] = None,
    until_end: Annotated[bool, typer.Option("--until-end", "-e", help="Stop at what is the end now.")] = False,
    until: Annotated[str | None, typer.Option("--until", metavar="WHEN", help="Stop at records of this time.")] = None,
    count: Annotated[int, typer.Option("--count", "-n", help="Stop after so many.")] = 0,
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="Read as a member of this group, and commit.")
    ] = None,
    format_: Annotated[
        str | None, typer.Option("--format", "-f", help=r"kcat's format, e.g. '%t %p %o %k %s\n'.")
    ] = None,
    keys_only: Annotated[bool, typer.Option("--keys-only", help="Print keys instead of values.")] = False,
    filter_: Annotated[
        str | None, typer.Option("--filter", metavar="EXPR", help="e.g. 'value.amount > 10 and key != \"x\"'.")
    ] = None,
    decode: Annotated[str | None, typer.Option("--decode", help="Value format: avro or protobuf.")] = None,
    schema: Annotated[str | None, typer.Option("--schema", help="Schema file (.avsc, .proto or .desc).")] = None,
    registry: Annotated[str | None, typer.Option("--registry", help="Address of a schema registry.")] = None,
    isolation: Annotated[str, typer.Option("--isolation", help="committed or uncommitted.")] = "committed",
) -> None:
    """Read records. Starts at the end unless told otherwise; runs until Ctrl-C unless given an end."""
    if isolation not in ("committed", "uncommitted"):
        raise usage_error(f"--isolation {isolation!r} is unknown", "there is committed and uncommitted")
    if sum([from_beginning, from_ is not None, offset is not None]) > 1:
        raise usage_error("several starts are given", "take one of --from-beginning, --from and --offset")
    render = _renderer(session, format_, keys_only, _decoder(decode, schema, registry))
    accepts = _filter(filter_)
    reader = Reader(session, topics, partition, isolation == "committed", group)
    ends = Ends(count=count, until_ms=parse_time(until) if until else None)
    reader.start(from_beginning, parse_time(from_) if from_ else None, offset)
    if until_end or until is not None:
        ends.offsets = reader.end_offsets() if until_end else {}
    with reader:
        _copy(reader.batches(ends), render, accepts, ends)


def _renderer(
    session: Session, format_: str | None, keys_only: bool, decode: Callable[[bytes], Any] | None
) -> Callable[[Any], bytes]:
    if session.output.as_json:
        return lambda message: json_line(message, decode)
    if format_ is not None:
        return compile_format(format_)
    if decode is not None:
        import json

        return lambda m: json.dumps(None if m.value() is None else decode(m.value()), default=str).encode() + b"\n"
    if keys_only:
        return lambda message: (message.key() or b"") + b"\n"
    return lambda message: (message.value() or b"") + b"\n"


def _filter(text: str | None) -> Callable[[Any], bool] | None:
    if text is None:
        return None
    from penstock.cli.filters import compile_filter

    return compile_filter(text)


def _decoder(kind: str | None, schema: str | None, registry: str | None) -> Callable[[bytes], Any] | None:
    if kind is None:
        return None
    from penstock.cli.decoding import value_decoder

    return value_decoder(kind, schema, registry)


def _copy(
    batches: Iterator[list[Any]], render: Callable[[Any], bytes], accepts: Callable[[Any], bool] | None, ends: Ends
) -> None:
    out = sys.stdout.buffer
    on_terminal = sys.stdout.isatty()
    for batch in batches:
        kept = [message for message in batch if accepts(message)] if accepts is not None else batch
        if ends.count:
            kept = kept[: ends.count - ends.shown]
        ends.shown += len(kept)
        if on_terminal:
            out.writelines(for_terminal(render(message)) for message in kept)
            out.flush()
        else:
            out.write(b"".join([render(message) for message in kept]))
            if len(batch) < BATCH:  # a slow stream is seen at once, a fast one in large writes
                out.flush()
    out.flush()


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

        views = [admin.topic(session, name) for name in topics]
        self._session, self._group, self._committed = session, group, committed
        self.keys = [
            (view.name, index) for view in views for index in view.partitions if not partitions or index in partitions
        ]
        if not self.keys:
            raise usage_error(
                f"none of {', '.join(topics)} has such a partition", "`penstock topic describe` lists them"
            )
        settings: dict[str, Any] = {
            "group.id": group or "penstock-cli",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "auto.offset.reset": "latest",
            "fetch.message.max.bytes": 4 << 20,
            "queued.min.messages": 200_000,
            "queued.max.messages.kbytes": 262_144,
        }
        settings["error_cb"] = self._on_client_error
        self._down_since: float | None = None
        self._topics = topics
        self._settings = settings
        self._make = Consumer
        self._consumer: Any = None
        self._position: dict[Key, int] = {}

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        if self._consumer is not None:
            self._commit()
            self._consumer.close()

    def start(self, from_beginning: bool, from_ms: int | None, offsets: list[str] | None) -> None:
        from confluent_kafka import TopicPartition

        if self._group is not None:
            if from_ms is not None or offsets is not None:
                raise usage_error("a group starts where it has committed", "`penstock group reset` moves it")
            self._settings["auto.offset.reset"] = "earliest" if from_beginning else "latest"
            self._consumer = self._make(self._session.librdkafka(**self._settings))
            self._consumer.subscribe(self._topics)
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
        wanted = parse_partition_offsets(offsets, {index for _, index in self.keys})
        self.keys = [key for key in self.keys if key[1] in wanted]
        return {
            key: max(earliest[key], latest[key] + wanted[key[1]]) if wanted[key[1]] < 0 else wanted[key[1]]
            for key in self.keys
        }

    def _offsets(self, position: int) -> dict[Key, tuple[int, int]]:
        return admin.list_offsets(self._session, dict.fromkeys(self.keys, position), committed=self._committed)

    def end_offsets(self) -> dict[Key, int]:
        return {key: found for key, (found, _) in self._offsets(admin.LATEST).items()}

    def batches(self, ends: Ends) -> Iterator[list[Any]]:
        """Messages as they come, until an end is reached."""
        if ends.offsets is not None:
            ends.reached = {key for key, end in ends.offsets.items() if self._position.get(key, -1) >= end}
        while not self._done(ends):
            size = min(BATCH, ends.count - ends.shown) if ends.count else BATCH
            messages = self._consumer.consume(size, 0.2)
            batch = []
            for message in messages:
                error = message.error()
                if error is None:
                    if self._take(message, ends):
                        batch.append(message)
                else:
                    self._on_error(message, error, ends)
            if messages:
                self._down_since = None
            elif self._down_since is not None:
                self._insist_on_a_broker()
            if batch:
                yield batch
                if self._group is not None:
                    self._commit()

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
            self._consumer.list_topics(self._topics[0], timeout=3)
            self._down_since = None
        except KafkaException as error:
            raise self._session.unreachable(error.args[0].str()) from error

    def _done(self, ends: Ends) -> bool:
        if ends.count and ends.shown >= ends.count:
            return True
        if ends.offsets is None and ends.until_ms is None:
            return False
        wanted = set(self.keys) if self._group is None else set(ends.offsets or self.keys)
        return wanted <= ends.reached

    def _commit(self) -> None:
        """Commit what was handed on: with --group at least once, on Ctrl-C too."""
        from confluent_kafka import KafkaException, TopicPartition

        if self._group is None or not self._position:
            return
        offsets = [TopicPartition(topic, index, offset) for (topic, index), offset in self._position.items()]
        self._position = {}
        try:
            self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            self._session.output.note(f"penstock: offsets were not committed: {error.args[0].str()}")
