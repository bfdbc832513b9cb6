"""`penstock consume`: read topics from any position, until any end, filtered, decoded and formatted."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import suggest
from penstock.cli.typed import command, new_app
from penstock.operate.errors import usage_error
from penstock.operate.positions import parse_time
from penstock.operate.record_format import compile_format, for_terminal, json_line
from penstock.operate.record_reader import BATCH, Ends, Reader

if TYPE_CHECKING:
    from penstock.cli.session import Session

app = new_app("Read records: from any offset or time, decoded, filtered, formatted.", no_args_is_help=False)

Render = Callable[[list[Any]], bytes]


@command(app)
def consume(
    session: Session,
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC…", show_default=False, autocompletion=suggest.topics)],
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
    count: Annotated[int, typer.Option("--count", "-n", min=0, help="Stop after so many.")] = 0,
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
        _copy(reader.batches(ends), render, accepts, ends, commits=group is not None)


def _renderer(session: Session, format_: str | None, keys_only: bool, decode: Callable[[bytes], Any] | None) -> Render:
    """From messages to what is printed of them."""
    if session.output.as_json:
        return _each(lambda message: json_line(message, decode))
    if format_ is not None:
        return _each(compile_format(format_))
    if decode is not None:
        import json

        return _each(
            lambda m: json.dumps(None if m.value() is None else decode(m.value()), default=str).encode() + b"\n"
        )
    return _lines_of("key" if keys_only else "value")


def _each(render: Callable[[Any], bytes]) -> Render:
    return lambda messages: b"".join([render(message) for message in messages])


def _lines_of(field: str) -> Render:
    """A line each. Nothing in here is done per message in Python: this is what moves topics through pipes."""

    def render(messages: list[Any]) -> bytes:
        parts = list(map(getattr(type(messages[0]), field), messages))
        if None in parts:
            parts = [part or b"" for part in parts]
        parts.append(b"")
        return b"\n".join(parts)

    return render


def _filter(text: str | None) -> Callable[[Any], bool] | None:
    if text is None:
        return None
    from penstock.operate.filters import compile_filter

    return compile_filter(text)


def _decoder(kind: str | None, schema: str | None, registry: str | None) -> Callable[[bytes], Any] | None:
    if kind is None:
        if schema is not None or registry is not None:
            raise usage_error("--schema and --registry need --decode", "--decode avro or --decode protobuf")
        return None
    from penstock.operate.decoding import value_decoder

    return value_decoder(kind, schema, registry)


def _copy(
    batches: Iterator[list[Any]], render: Render, accepts: Callable[[Any], bool] | None, ends: Ends, commits: bool
) -> None:
    out = sys.stdout.buffer
    on_terminal = sys.stdout.isatty()
    for batch in batches:
        kept = [message for message in batch if accepts(message)] if accepts is not None else batch
        if ends.count:
            kept = kept[: ends.count - ends.shown]
        ends.shown += len(kept)
        if on_terminal:
            out.writelines(for_terminal(render([message])) for message in kept)
        elif kept:
            out.write(render(kept))
        # A slow stream is seen at once, a fast one in large writes; a group commits only what the output has taken.
        if on_terminal or commits or len(batch) < BATCH:
            out.flush()
    out.flush()
