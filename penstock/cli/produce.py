"""`penstock produce`: records from standard input or files into a topic, with librdkafka."""

from __future__ import annotations

import base64
import json
import sys
import time
from collections.abc import Iterable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from penstock.cli import suggest
from penstock.cli.typed import command, new_app
from penstock.operate.errors import ExitCode, UserError, usage_error
from penstock.operate.record_format import unescape
from penstock.operate.record_writer import Block, Headers, Record, Writer, objects_of_lines, record_from_object

if TYPE_CHECKING:
    from penstock.cli.session import Session
    from penstock.operate.encoding import Encode

app = new_app("Write records from standard input or files.", no_args_is_help=False)

READ_BYTES = 1 << 20


@command(app)
def produce(
    session: Session,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False, autocompletion=suggest.topics)],
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILE…]", help="Standard input if none.", show_default=False)
    ] = None,
    format_: Annotated[
        str, typer.Option("--format", "-f", help="lines, json (as `consume --json` prints) or raw (a file a record).")
    ] = "lines",
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", help="Splits each line into key and value.")
    ] = None,
    delimiter: Annotated[
        str, typer.Option("--delimiter", "-D", help=r"What ends a record of -f lines, e.g. '\0' or ';\n'.")
    ] = r"\n",
    key: Annotated[str | None, typer.Option("--key", "-k", help="The key of every record.")] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="On every record; may be repeated.")
    ] = None,
    encode: Annotated[
        str | None,
        typer.Option(
            "--encode", help="JSON to avro, protobuf, json-schema (checked), short, int, long, float, double."
        ),
    ] = None,
    schema: Annotated[str | None, typer.Option("--schema", help="Schema file (.avsc, .proto, .desc or .json).")] = None,
    encode_key: Annotated[str | None, typer.Option("--encode-key", help="The same for keys.")] = None,
    key_schema: Annotated[str | None, typer.Option("--key-schema", help="Schema file of the keys.")] = None,
    registry: Annotated[
        str | None,
        typer.Option("--registry", help="Register schemas at this address; write its ids (Confluent's form)."),
    ] = None,
    tombstones: Annotated[
        bool, typer.Option("--tombstones", "-Z", help="An empty value is a tombstone (null).")
    ] = False,
    partition: Annotated[
        int | None, typer.Option("--partition", min=-1, help="Write to this one; -1: by key.", show_default=False)
    ] = None,
    repartition: Annotated[
        bool, typer.Option("--repartition", help="With -f json: place by key, whatever partition the records had.")
    ] = False,
    compression: Annotated[str, typer.Option("--compression", "-z", help="none, gzip, snappy, lz4 or zstd.")] = "none",
    rate: Annotated[float, typer.Option("--rate", min=0, help="Records per second; 0: as fast as it goes.")] = 0.0,
    acks: Annotated[str, typer.Option("--acks", help="all, 1 or 0.")] = "all",
    transactional: Annotated[
        bool, typer.Option("--transactional", help="All records become visible together, or none.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not say how many were written.")] = False,
) -> None:
    """Write records: one per line of standard input or of the files."""
    headers = [_header(pair) for pair in header or []] or None
    if repartition:
        if partition not in (None, -1):
            raise usage_error("--partition and --repartition contradict each other", "take one of them")
        partition = -1
    place = -1 if partition is None else partition
    if key is not None and key_separator is not None:
        raise usage_error("--key and --key-separator contradict each other", "take one of them")
    if key_separator == "":
        raise usage_error("--key-separator is empty", "for example -K : or -K '\\t'")
    encoders = _encoders(encode, schema, encode_key, key_schema, registry, topic)
    records: Iterator[Record]
    if format_ == "lines":
        ending = unescape(delimiter, "--delimiter")
        if not ending:
            raise usage_error("--delimiter is empty", "-f raw takes a whole file as one record")
        blocks = _blocks(_streams(files), key_separator, key, tombstones, ending)
        if encoders:
            blocks = _encoded(blocks, encoders)
        records = ((row["key"], row["value"], headers, place, 0) for block, _ in blocks for row in block)
    elif format_ == "json":
        records = _from_json(_streams(files), headers, partition, encoders)
    elif format_ == "raw":
        records = _from_files(files, key, headers, place, encoders)
    else:
        raise usage_error(f"--format {format_!r} is unknown", "there is lines, json and raw")
    writer = Writer(session, topic, compression, acks, transactional)
    if format_ == "lines" and headers is None and rate <= 0:
        written = writer.write_blocks(blocks, place)
    else:
        written = writer.write(_paced(records, rate) if rate > 0 else records)
    if session.output.as_json:
        session.output.record({"topic": topic, "written": written})
    elif not quiet:
        session.output.note(f"{written} records written to {topic}")


def _header(pair: str) -> tuple[str, bytes | None]:
    name, equals, value = pair.partition("=")
    if not equals or not name:
        raise usage_error(f"--header {pair!r} is not NAME=VALUE", "for example -H source=web")
    return name, value.encode()


def _streams(files: list[Path] | None) -> Iterator[BufferedReader]:
    if not files:
        if sys.stdin is None:
            raise usage_error("standard input is closed", "pipe the records in, or name files")
        yield cast("BufferedReader", sys.stdin.buffer)
        return
    for path in files:
        if not path.is_file():
            raise UserError(f"there is no file {path}", code=ExitCode.NOT_FOUND)
        with path.open("rb") as stream:
            yield stream


def _lines(stream: BufferedReader, ending: bytes) -> Iterator[list[bytes]]:
    """Whole lines, as many as one read gives: a slow pipe is passed on line by line, a fast one in large blocks."""
    begun: list[bytes] = []
    while chunk := stream.read1(READ_BYTES):
        begun.append(chunk)
        if len(ending) > 1:  # it may lie across two reads
            begun = [b"".join(begun)]
        if ending in begun[-1]:
            *lines, last = b"".join(begun).split(ending)
            begun = [last]
            yield lines
    if any(begun):
        yield [b"".join(begun)]


def _blocks(
    streams: Iterable[BufferedReader], separator: str | None, key: str | None, tombstones: bool, ending: bytes
) -> Iterator[tuple[Block, int]]:
    """Records of the lines, with the length of the longest line of each block."""
    split = unescape(separator, "--key-separator") if separator is not None else None
    fixed = key.encode() if key is not None else None
    for stream in streams:
        done = 0
        for lines in _lines(stream, ending):
            block: Block
            if split is None:
                block = [{"key": fixed, "value": line} for line in lines]
            else:
                parts = [line.partition(split) for line in lines]
                block = [{"key": found, "value": value} for found, seen, value in parts if seen]
                if len(block) < len(lines):
                    good = next(index for index, (_, seen, _) in enumerate(parts) if not seen)
                    yield block[:good], max(map(len, lines))
                    raise usage_error(
                        f"line {done + good + 1} has no key separator {separator!r}", "every line needs one with -K"
                    )
            if tombstones:
                block = [row if row["value"] else {**row, "value": None} for row in block]
            yield block, max(map(len, lines))
            done += len(lines)


def _encoders(
    kind: str | None,
    schema: str | None,
    key_kind: str | None,
    key_schema: str | None,
    registry: str | None,
    topic: str,
) -> dict[str, Encode]:
    """How key and value are encoded, each by itself."""
    if (kind is None and schema is not None) or (kind is key_kind is None and registry is not None):
        raise usage_error("--schema and --registry need --encode", "for example --encode avro --schema order.avsc")
    if key_kind is None and key_schema is not None:
        raise usage_error("--key-schema needs --encode-key", "for example --encode-key avro --key-schema id.avsc")
    if kind is key_kind is None:
        return {}
    from penstock.operate.encoding import encoder

    found: dict[str, Encode] = {}
    if kind is not None:
        found["value"] = encoder(kind, schema, registry, topic)
    if key_kind is not None:
        found["key"] = encoder(key_kind, key_schema, registry, topic, key=True)
    return found


def _encoded(blocks: Iterable[tuple[Block, int]], encoders: dict[str, Encode]) -> Iterator[tuple[Block, int]]:
    done = 0
    for block, longest in blocks:
        for number, row in enumerate(block, done + 1):
            for name, encode in encoders.items():
                text = row[name]
                if text is not None:
                    row[name] = encode(text, f"record {number}, {name}")
                    longest = max(longest, len(row[name] or b""))
        yield block, longest
        done += len(block)


def _from_json(
    streams: Iterable[BufferedReader], headers: Headers | None, partition: int | None, encoders: dict[str, Encode]
) -> Iterator[Record]:
    for stream in streams:
        for where, row in objects_of_lines(stream, "", 'for example {"key": "a", "value": {"n": 1}}'):
            for name, encode in encoders.items():
                if row.get(name) is not None:
                    data = encode(json.dumps(row[name]).encode(), f"{where}, {name}")
                    row |= {name: base64.b64encode(data).decode(), f"{name}_encoding": "base64"}
            yield record_from_object(row, where, headers, partition)


def _from_files(
    files: list[Path] | None, key: str | None, headers: Headers | None, partition: int, encoders: dict[str, Encode]
) -> Iterator[Record]:
    for number, stream in enumerate(_streams(files), 1):
        parts = {"key": key.encode() if key else None, "value": stream.read()}
        for name, encode in encoders.items():
            text = parts[name]
            if text is not None:
                parts[name] = encode(text, f"file {number}, {name}")
        yield parts["key"], parts["value"], headers, partition, 0


def _paced(records: Iterable[Record], rate: float) -> Iterator[Record]:
    began = time.monotonic()
    for number, record in enumerate(records):
        wait = began + number / rate - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        yield record
