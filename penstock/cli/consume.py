"""`penstock consume`: read topics from any position, until any end, filtered, decoded and formatted."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import suggest
from penstock.cli.typed import command, new_app
from penstock.operate.errors import usage_error
from penstock.operate.positions import parse_time
from penstock.operate.record_format import Decoded, compile_format, for_terminal, json_line, unescape
from penstock.operate.record_reader import BATCH, Ends, Reader

if TYPE_CHECKING:
    from penstock.cli.session import Session

app = new_app("Read records: from any offset or time, decoded, filtered, formatted.", no_args_is_help=False)

Render = Callable[[list[Any]], bytes]


@command(app)
def consume(
    session: Session,
    topics: Annotated[
        list[str],
        typer.Argument(
            metavar="TOPIC…",
            help="Names, or regular expressions that begin with ^.",
            show_default=False,
            autocompletion=suggest.topics,
        ),
    ],
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
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="Stop after so many.")] = None,
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="Read as a member of this group, and commit.")
    ] = None,
    format_: Annotated[
        str | None, typer.Option("--format", "-f", help=r"e.g. '%t %p %o %k{hex} %v\n'; see below.")
    ] = None,
    delimiter: Annotated[
        str, typer.Option("--delimiter", "-D", help=r"Written behind each record, e.g. '\0'; not with -f and --json.")
    ] = r"\n",
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", help="Print the key before the value, and this between them.")
    ] = None,
    keys_only: Annotated[bool, typer.Option("--keys-only", help="Print keys instead of values.")] = False,
    filter_: Annotated[
        str | None,
        typer.Option("--filter", metavar="EXPR", help="e.g. 'value.amount > 10 and key != \"x\"'; see below."),
    ] = None,
    decode: Annotated[
        str | None,
        typer.Option("--decode", help="Values: avro, protobuf, json-schema, short, int, long, float, double."),
    ] = None,
    schema: Annotated[str | None, typer.Option("--schema", help="Schema file (.avsc, .proto or .desc).")] = None,
    decode_key: Annotated[str | None, typer.Option("--decode-key", help="Keys are such, whatever values are.")] = None,
    key_schema: Annotated[str | None, typer.Option("--key-schema", help="Schema file of the keys.")] = None,
    registry: Annotated[str | None, typer.Option("--registry", help="Address of a schema registry.")] = None,
    isolation: Annotated[str, typer.Option("--isolation", help="committed or uncommitted.")] = "committed",
) -> None:
    """Read records. Starts at the end unless told otherwise; runs until Ctrl-C unless given an end.

    Format: %t topic, %p partition, %o offset, %k key, %s or %v value, %T timestamp, %h headers, %K and %S their sizes.
    %k and %v take {hex}, {base64} or {json} behind them, %h {json}, %T {iso}.

    Filter: comparisons of topic, partition, offset, timestamp, key, value and headers, joined by and, or, not. Fields
    of JSON and of decoded values follow a dot: value.user.name == "anna". docs/filters.md has the whole language.
    """
    if isolation not in ("committed", "uncommitted"):
        raise usage_error(f"--isolation {isolation!r} is unknown", "there is committed and uncommitted")
    if sum([from_beginning, from_ is not None, offset is not None]) > 1:
        raise usage_error("several starts are given", "take one of --from-beginning, --from and --offset")
    decoders = _decoders(decode, schema, decode_key, key_schema, registry)
    render = _renderer(session, format_, keys_only, key_separator, unescape(delimiter, "--delimiter"))
    accepts = _filter(filter_)
    reader = Reader(session, topics, partition, isolation == "committed", group)
    ends = Ends(count=count or 0, until_ms=parse_time(until) if until else None)
    reader.start(from_beginning, parse_time(from_) if from_ else None, offset)
    if until_end or until is not None:
        ends.offsets = reader.end_offsets() if until_end else {}
    with reader:
        batches = reader.batches(ends)
        if decoders:
            batches = ([Decoded(message, decoders) for message in batch] for batch in batches)
        _copy(batches, render, accepts, ends, reader.hand_over if group is not None else None)


def _renderer(
    session: Session, format_: str | None, keys_only: bool, key_separator: str | None, delimiter: bytes
) -> Render:
    """From messages to what is printed of them."""
    if keys_only and key_separator is not None:
        raise usage_error("--keys-only and --key-separator contradict each other", "take one of them")
    if session.output.as_json:
        return _each(json_line)
    if format_ is not None:
        return _each(compile_format(format_))
    if key_separator is not None:
        between = unescape(key_separator, "--key-separator")
        return _each(lambda m: (m.key() or b"") + between + (m.value() or b"") + delimiter)
    return _lines_of("key" if keys_only else "value", delimiter)


def _each(render: Callable[[Any], bytes]) -> Render:
    return lambda messages: b"".join([render(message) for message in messages])


def _lines_of(field: str, delimiter: bytes) -> Render:
    """A line each. Nothing in here is done per message in Python: this is what moves topics through pipes."""

    def render(messages: list[Any]) -> bytes:
        parts = list(map(getattr(type(messages[0]), field), messages))
        if None in parts:
            parts = [part or b"" for part in parts]
        parts.append(b"")
        return delimiter.join(parts)

    return render


def _filter(text: str | None) -> Callable[[Any], bool] | None:
    if text is None:
        return None
    from penstock.operate.filters import compile_filter

    return compile_filter(text)


def _decoders(
    kind: str | None, schema: str | None, key_kind: str | None, key_schema: str | None, registry: str | None
) -> dict[str, Callable[[bytes], Any]]:
    """How key and value are decoded, each by itself."""
    if (kind is None and schema is not None) or (kind is key_kind is None and registry is not None):
        raise usage_error("--schema and --registry need --decode", "--decode avro or --decode protobuf")
    if key_kind is None and key_schema is not None:
        raise usage_error("--key-schema needs --decode-key", "--decode-key avro or --decode-key protobuf")
    if kind is key_kind is None:
        return {}
    from penstock.operate.decoding import decoder

    found = {}
    if kind is not None:
        found["value"] = decoder(kind, schema, registry)
    if key_kind is not None:
        found["key"] = decoder(key_kind, key_schema, registry, key=True)
    return found


def _copy(
    batches: Iterator[list[Any]],
    render: Render,
    accepts: Callable[[Any], bool] | None,
    ends: Ends,
    hand_over: Callable[[bytes, IO[bytes]], None] | None,
) -> None:
    """`hand_over`: how a group's records are written, so that it commits only what the output has taken."""
    out = sys.stdout.buffer
    on_terminal = sys.stdout.isatty()
    for batch in batches:
        kept = [message for message in batch if accepts(message)] if accepts is not None else batch
        if ends.count:
            kept = kept[: ends.count - ends.shown]
        ends.shown += len(kept)
        if on_terminal:
            text = b"".join(for_terminal(render([message])) for message in kept)
        else:
            text = render(kept) if kept else b""
        if hand_over is not None:
            hand_over(text, out)
            continue
        out.write(text)
        if on_terminal or len(batch) < BATCH:  # a slow stream is seen at once, a fast one in large writes
            out.flush()
    out.flush()
