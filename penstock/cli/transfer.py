"""`penstock topic export | import | copy`: records in JSONL or Parquet files, exactly, with progress, resumable.

A JSONL line is what `consume --json` prints. Keys, values, headers, timestamps, partitions and nulls come back as they
were; offsets do not (the target gives its own). Export writes to `FILE.part` and renames at the end, so a file has
its name only when it is complete; `--resume` goes on where a broken export stopped.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import suggest
from penstock.cli.typed import command
from penstock.operate import admin, topic_copy
from penstock.operate.errors import ExitCode, UserError, usage_error
from penstock.operate.record_format import as_object
from penstock.operate.record_reader import Ends, Reader
from penstock.operate.record_writer import Record, Writer, objects_of_lines, record_from_object

if TYPE_CHECKING:
    from penstock.cli.session import Session

Topic = Annotated[str, typer.Argument(metavar="TOPIC", show_default=False, autocompletion=suggest.topics)]
File = Annotated[Path, typer.Argument(metavar="FILE", help="Ends with .jsonl or .parquet.", show_default=False)]
CHUNK_RECORDS = 100_000  # after so many an import notes how far it is
Repartition = Annotated[bool, typer.Option("--repartition", help="Place records by key, wherever they were.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with a transfer that was broken off.")]


def register(app: typer.Typer) -> None:
    command(app, "export")(export)
    command(app, "import")(import_)
    command(app, "copy")(copy)


def _kind(path: Path) -> str:
    if path.suffix in (".jsonl", ".ndjson"):
        return "jsonl"
    if path.suffix == ".parquet":
        return "parquet"
    raise usage_error(f"{path} is neither .jsonl nor .parquet", "the ending of the file chooses the format")


def export(session: Session, topic: Topic, file: File, resume: Resume = False) -> None:
    """Write all records of a topic, up to what is the end now, to a JSONL or Parquet file."""
    kind = _kind(file)
    part = file.with_name(file.name + ".part")
    if resume and kind == "parquet":
        raise usage_error("--resume works with .jsonl only", "a Parquet file is written as a whole")
    if resume and file.exists():
        raise UserError(f"{file} is complete already", "leave out --resume to write it again")
    if not file.parent.is_dir():
        raise UserError(f"there is no folder {file.parent}", "make it first", ExitCode.NOT_FOUND)
    done = _exported(part, topic) if resume else {}
    reader = Reader(session, [topic], None, True, None)
    starts = [f"{partition}:{offset}" for partition, offset in done.items()]
    reader.start(True, None, None)
    if starts:
        reader.start(False, None, starts + _untouched(session, topic, done))
    ends = Ends(offsets=reader.end_offsets())
    total = reader.left_until(ends)
    try:
        with reader, session.output.progress(f"exporting {topic}", total) as progress:
            rows = _rows(reader, ends, progress)
            count = _write_jsonl(part, rows, append=bool(done)) if kind == "jsonl" else _write_parquet(part, rows)
    except OSError as error:
        hint = (
            f"what was written so far is in {part}; make room and add --resume"
            if kind == "jsonl"
            else "make room first"
        )
        raise UserError(f"cannot write {part}: {error.strerror}", hint, ExitCode.INCOMPLETE) from error
    part.replace(file)
    session.output.result(
        {"topic": topic, "file": str(file), "records": count}, f"{count} records of {topic} in {file}"
    )


def _untouched(session: Session, topic: str, done: dict[int, int]) -> list[str]:
    keys = [(topic, index) for index in admin.topic(session, topic).partitions if index not in done]
    starts = admin.list_offsets(session, dict.fromkeys(keys, admin.EARLIEST))
    return [f"{index}:{offset}" for (_, index), (offset, _) in starts.items()]


def _exported(part: Path, topic: str) -> dict[int, int]:
    """{partition: next offset} of a broken export; a half line at its end is cut off."""
    if not part.exists():
        return {}
    done: dict[int, int] = {}
    good = 0
    with part.open("rb") as stream:
        for line in stream:
            if not line.endswith(b"\n"):
                break
            try:
                row = json.loads(line)
                if row["topic"] != topic:
                    raise UserError(f"{part} is of topic {row['topic']}", "remove it, or leave out --resume")
                done[row["partition"]] = row["offset"] + 1
            except (ValueError, KeyError, TypeError):
                raise UserError(f"{part} is no broken export", "remove it, or leave out --resume") from None
            good += len(line)
    os.truncate(part, good)
    return done


def _rows(reader: Reader, ends: Ends, progress: Any) -> Iterator[list[dict[str, Any]]]:
    for batch in reader.batches(ends):
        yield [as_object(message) for message in batch]
        progress.advance(len(batch))


def _write_jsonl(part: Path, batches: Iterator[list[dict[str, Any]]], append: bool) -> int:
    count = 0
    with part.open("ab" if append else "wb") as stream:
        for batch in batches:
            lines = [json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in batch]
            stream.write(("\n".join(lines) + "\n").encode())
            count += len(batch)
        stream.flush()
        os.fsync(stream.fileno())
    return count


def _parquet() -> tuple[Any, Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise UserError("Parquet files need pyarrow", "install it with: pip install 'penstock[spark]'") from error
    header = pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())])
    schema = pyarrow.schema(
        [
            ("partition", pyarrow.int32()),
            ("offset", pyarrow.int64()),
            ("timestamp", pyarrow.int64()),
            ("key", pyarrow.binary()),
            ("value", pyarrow.binary()),
            ("headers", pyarrow.list_(header)),
        ]
    )
    return pyarrow, pyarrow.parquet, schema


def _write_parquet(part: Path, batches: Iterator[list[dict[str, Any]]]) -> int:
    pyarrow, parquet, schema = _parquet()
    count = 0
    with parquet.ParquetWriter(part, schema) as writer:
        for batch in batches:
            rows = []
            for row in batch:
                key, value, headers, _, timestamp = record_from_object(row, "record")
                pairs = None if headers is None else [{"key": k, "value": v} for k, v in headers]
                rows.append({"partition": row["partition"], "offset": row["offset"], "timestamp": timestamp, "key": key,
                             "value": value, "headers": pairs})  # fmt: skip
            writer.write_table(pyarrow.Table.from_pylist(rows, schema))
            count += len(rows)
    return count


def import_(
    session: Session,
    topic: Topic,
    file: File,
    repartition: Repartition = False,
    resume: Resume = False,
) -> None:
    """Write the records of a JSONL or Parquet file into a topic, each to the partition it had.

    A topic that is not there is made with as many partitions as the file names. --resume skips what is surely in the
    topic; up to 100,000 records behind that may come twice.
    """
    if not file.is_file():
        raise UserError(f"there is no file {file}", code=ExitCode.NOT_FOUND)
    kind = _kind(file)
    journal = file.with_name(f"{file.name}.{topic}.imported")
    skip = _imported(journal) if resume else 0
    partition = -1 if repartition else None
    source = _read_jsonl(file, partition) if kind == "jsonl" else _read_parquet(file, partition)
    if not repartition and topic not in admin.cluster(session).topics:
        _make_for(session, topic, _read_jsonl(file, None) if kind == "jsonl" else _read_parquet(file, None))
    writer = Writer(session, topic, "none", "all", False)
    written = skip
    try:
        with session.output.progress(f"importing into {topic}") as progress:
            progress.advance(skip)
            for chunk in _chunks(itertools.islice(source, skip, None), CHUNK_RECORDS):
                written += writer.write(chunk)
                journal.write_text(str(written))
                progress.advance(len(chunk))
    except BaseException:
        if journal.exists():
            session.output.note(f"penstock: {written} records are in {topic}; --resume goes on behind them:")
        raise
    journal.unlink(missing_ok=True)
    session.output.result(
        {"topic": topic, "file": str(file), "records": written}, f"{written} records of {file} in {topic}"
    )


def _make_for(session: Session, topic: str, records: Iterator[Record]) -> None:
    """A topic with all the partitions that the records name; the broker's default if they name none."""
    highest = max((partition for _, _, _, partition, _ in records), default=-1)
    topic_copy.make(session, topic, highest + 1 or -1)
    if highest >= 0:
        session.output.note(f"penstock: {topic} is new and has {highest + 1} partitions, as many as the file names")


def _imported(journal: Path) -> int:
    """How many records of the file are in the topic, as the journal of a broken import says."""
    if not journal.exists():
        return 0
    text = journal.read_text().strip()
    if not text.isdigit():
        raise UserError(f"{journal} is no journal of an import", "remove it, or leave out --resume")
    return int(text)


def _chunks(records: Iterator[Record], size: int) -> Iterator[list[Record]]:
    chunk: list[Record] = []
    for record in records:
        chunk.append(record)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _read_jsonl(file: Path, partition: int | None) -> Iterator[Record]:
    with file.open("rb") as stream:
        for where, row in objects_of_lines(stream, f"{file}, ", "export writes one object per line"):
            yield record_from_object(row, where, None, partition)


def _read_parquet(file: Path, partition: int | None) -> Iterator[Record]:
    pyarrow, parquet, schema = _parquet()
    try:
        source = parquet.ParquetFile(file)
    except pyarrow.ArrowInvalid:
        raise usage_error(f"{file} is no Parquet file", "`penstock topic export` writes one") from None
    missing = {"key", "value", "timestamp", "headers"} - set(source.schema_arrow.names)
    if missing:
        raise UserError(f"{file} has no column {min(missing)}", f"`topic export` writes {', '.join(schema.names)}")
    for batch in source.iter_batches():
        for row in batch.to_pylist():
            headers = None if row["headers"] is None else [(h["key"], h["value"]) for h in row["headers"]]
            own = row.get("partition", -1) if partition is None else partition
            yield row["key"], row["value"], headers, own, row["timestamp"]


def copy(
    session: Session,
    source: Annotated[str, typer.Argument(metavar="SOURCE", show_default=False, autocompletion=suggest.topics)],
    target: Annotated[str, typer.Argument(metavar="TARGET", show_default=False)],
    to_profile: Annotated[str | None, typer.Option("--to-profile", help="The target is in this cluster.")] = None,
    to_bootstrap: Annotated[
        str | None, typer.Option("--to", metavar="HOST:PORT", help="The target is in the cluster there.")
    ] = None,
    repartition: Repartition = False,
) -> None:
    """Copy all records of a topic into another one, also of another cluster.

    A target that is not there gets the partitions and settings of the source. With as many partitions on both sides a
    record keeps its own; else it goes by its key, as Java clients place it.
    """
    from penstock.cli.session import Session as OtherSession

    other = OtherSession(to_bootstrap, to_profile, None) if to_bootstrap or to_profile else session
    topic_copy.refuse_onto_itself(session, source, other, target)
    partitions = len(admin.topic(session, source).partitions)
    keeps = topic_copy.make_like(session, source, other, target) == partitions and not repartition
    if not keeps:
        session.output.note(f"penstock: records go to the partitions of {target} by their keys, not by where they were")
    reader = Reader(session, [source], None, True, None)
    reader.start(True, None, None)
    ends = Ends(offsets=reader.end_offsets())
    writer = Writer(other, target, "none", "all", False)
    copied = 0
    with reader, session.output.progress(f"copying {source}", reader.left_until(ends)) as progress:
        for batch in reader.batches(ends):
            copied += writer.write(
                (m.key(), m.value(), m.headers(), m.partition() if keeps else -1, m.timestamp()[1]) for m in batch
            )
            progress.advance(len(batch))
    session.output.result(
        {"source": source, "target": target, "records": copied}, f"{copied} records of {source} in {target}"
    )
