"""`penstock produce`: records from standard input or files into a topic, with librdkafka."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.errors import ExitCode, UserError, usage_error
from penstock.cli.record_format import bytes_of
from penstock.cli.typed import command, new_app

if TYPE_CHECKING:
    from penstock.cli.session import Session

app = new_app("Write records from standard input or files.", no_args_is_help=False)

Record = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None, int, int]
"""key, value, headers, partition (-1: by key), timestamp in ms (0: now)."""


@command(app)
def produce(
    session: Session,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)],
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILE…]", help="Standard input if none.", show_default=False)
    ] = None,
    format_: Annotated[
        str, typer.Option("--format", "-f", help="lines, json (as `consume --json` prints) or raw (a file a record).")
    ] = "lines",
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", help="Splits each line into key and value.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="The key of every record.")] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="On every record; may be repeated.")
    ] = None,
    tombstones: Annotated[
        bool, typer.Option("--tombstones", "-Z", help="An empty value is a tombstone (null).")
    ] = False,
    partition: Annotated[int, typer.Option("--partition", help="Write to this one; -1: by key.")] = -1,
    compression: Annotated[str, typer.Option("--compression", "-z", help="none, gzip, snappy, lz4 or zstd.")] = "none",
    rate: Annotated[float, typer.Option("--rate", help="Records per second at the most; 0: as fast as it goes.")] = 0.0,
    acks: Annotated[str, typer.Option("--acks", help="all, 1 or 0.")] = "all",
    transactional: Annotated[
        bool, typer.Option("--transactional", help="All records become visible together, or none.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not say how many were written.")] = False,
) -> None:
    """Write records: one per line of standard input or of the files."""
    headers = [_header(pair) for pair in header or []] or None
    if format_ == "lines":
        records = _from_lines(_streams(files), key_separator, key, headers, tombstones, partition)
    elif format_ == "json":
        records = _from_json(_streams(files), headers, partition)
    elif format_ == "raw":
        records = _from_files(files, key, headers, partition)
    else:
        raise usage_error(f"--format {format_!r} is unknown", "there is lines, json and raw")
    writer = Writer(session, topic, compression, acks, transactional)
    written = writer.write(_paced(records, rate) if rate > 0 else records)
    if session.output.as_json:
        session.output.record({"topic": topic, "written": written})
    elif not quiet:
        session.output.note(f"{written} records written to {topic}")


class Writer:
    """A librdkafka producer that stops at the first record that cannot be delivered, and says so."""

    def __init__(self, session: Session, topic: str, compression: str, acks: str, transactional: bool) -> None:
        from confluent_kafka import KafkaException, Producer

        if compression not in ("none", "gzip", "snappy", "lz4", "zstd"):
            raise usage_error(f"--compression {compression!r} is unknown", "there is none, gzip, snappy, lz4 and zstd")
        if acks not in ("all", "-1", "0", "1"):
            raise usage_error(f"--acks {acks!r} is unknown", "there is all, 1 and 0")
        settings = {
            "linger.ms": 5,
            "batch.num.messages": 100_000,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 500_000,
            "compression.type": compression,
            "acks": acks,
            "message.timeout.ms": 30_000,
            "delivery.report.only.error": True,  # a call into Python for every record would halve the speed
        }
        if transactional:
            settings["transactional.id"] = f"penstock-cli-{time.time_ns()}"
        elif acks in ("all", "-1"):
            settings["enable.idempotence"] = True
        self._session, self._topic, self._transactional = session, topic, transactional
        self._failure: Any = None
        try:
            self._producer = Producer(session.librdkafka(**settings))
            if transactional:
                self._producer.init_transactions(15)
        except KafkaException as error:
            raise self._explain(error.args[0]) from error

    def write(self, records: Iterable[Record]) -> int:
        from confluent_kafka import KafkaException

        producer, topic = self._producer, self._topic
        produce = producer.produce
        count = 0
        try:
            if self._transactional:
                producer.begin_transaction()
            for key, value, headers, partition, timestamp in records:
                while True:
                    try:
                        produce(topic, value, key, partition, self._delivered, timestamp=timestamp, headers=headers)
                        break
                    except BufferError:
                        producer.poll(0.05)
                        self._raise_failure(count)
                count += 1
                if not count & 0x3FFF:
                    producer.poll(0)
                    self._raise_failure(count)
            left = producer.flush(45)
            self._raise_failure(count)
            if left:
                raise self._session.unreachable(f"{left} of {count} records could not be delivered")
            if self._transactional:
                producer.commit_transaction(30)
        except KafkaException as error:
            raise self._explain(error.args[0]) from error
        except BaseException:
            if self._transactional:
                self._abort()
            raise
        return count

    def _abort(self) -> None:
        from confluent_kafka import KafkaException

        self._producer.purge()
        try:
            self._producer.abort_transaction(10)
        except KafkaException as error:
            self._session.output.note(f"penstock: the transaction could not be aborted, it will time out: {error}")

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None and self._failure is None:
            self._failure = error

    def _raise_failure(self, count: int) -> None:
        if self._failure is not None:
            self._producer.purge()
            raise self._explain(self._failure, f"of {count} records some were not written: ")

    def _explain(self, error: Any, prefix: str = "") -> UserError:
        if error.name() in ("_MSG_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_RESOLVE"):
            return self._session.unreachable(error.str())
        return UserError(f"{prefix}{error.str()}", f"the client says {error.name()}", ExitCode.REFUSED)


def _header(pair: str) -> tuple[str, bytes | None]:
    name, equals, value = pair.partition("=")
    if not equals or not name:
        raise usage_error(f"--header {pair!r} is not NAME=VALUE", "for example -H source=web")
    return name, value.encode()


def _streams(files: list[Path] | None) -> Iterator[IO[bytes]]:
    if not files:
        yield sys.stdin.buffer
        return
    for path in files:
        if not path.is_file():
            raise UserError(f"there is no file {path}", code=ExitCode.NOT_FOUND)
        with path.open("rb") as stream:
            yield stream


def _from_lines(
    streams: Iterable[IO[bytes]],
    separator: str | None,
    key: str | None,
    headers: list[tuple[str, bytes | None]] | None,
    tombstones: bool,
    partition: int,
) -> Iterator[Record]:
    split = separator.encode().decode("unicode_escape").encode() if separator else None
    fixed = key.encode() if key is not None else None
    for stream in streams:
        for number, line in enumerate(stream, 1):
            value: bytes | None = line[:-1] if line.endswith(b"\n") else line
            found = fixed
            if split is not None and value is not None:
                found, seen, value = value.partition(split)
                if not seen:
                    raise usage_error(
                        f"line {number} has no key separator {separator!r}", "every line needs one with -K"
                    )
            yield found, None if tombstones and not value else value, headers, partition, 0


def _from_json(
    streams: Iterable[IO[bytes]], headers: list[tuple[str, bytes | None]] | None, partition: int
) -> Iterator[Record]:
    for stream in streams:
        for number, line in enumerate(stream, 1):
            if not line.strip():
                continue
            where = f"line {number}"
            try:
                row = json.loads(line)
            except ValueError as error:
                raise usage_error(
                    f"{where} is not JSON: {error}", 'for example {"key": "a", "value": {"n": 1}}'
                ) from None
            if not isinstance(row, dict):
                raise usage_error(f"{where} is no JSON object", 'for example {"key": "a", "value": "b"}')
            yield record_from_object(row, where, headers, partition)


def record_from_object(
    row: dict[str, Any], where: str, headers: list[tuple[str, bytes | None]] | None = None, partition: int = -1
) -> Record:
    key = bytes_of(row.get("key"), row.get("key_encoding"), f"{where}, key")
    value = bytes_of(row.get("value"), row.get("value_encoding"), f"{where}, value")
    given = row.get("headers") or []
    pairs = list(given.items()) if isinstance(given, dict) else [tuple(item) for item in given]
    own = [(p[0], bytes_of(p[1], p[2] if len(p) > 2 else None, f"{where}, header {p[0]}")) for p in pairs]
    return key, value, [*(headers or []), *own] or None, partition, int(row.get("timestamp") or 0)


def _from_files(
    files: list[Path] | None, key: str | None, headers: list[tuple[str, bytes | None]] | None, partition: int
) -> Iterator[Record]:
    for stream in _streams(files):
        yield key.encode() if key else None, stream.read(), headers, partition, 0


def _paced(records: Iterable[Record], rate: float) -> Iterator[Record]:
    began = time.monotonic()
    for number, record in enumerate(records):
        wait = began + number / rate - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        yield record
