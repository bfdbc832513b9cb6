"""`penstock dlq`: what pipelines could not use, why, and back to where it came from once that is repaired."""

from __future__ import annotations

import base64
from typing import Annotated, Any

import typer

from penstock.cli import suggest
from penstock.cli.session import Session
from penstock.cli.typed import command, new_app
from penstock.operate.errors import ExitCode, UserError, usage_error

app = new_app("Dead-letter topics: list, show, redrive.")

Topic = Annotated[
    str, typer.Argument(help="A dead-letter topic, or the pipeline that it belongs to.", autocompletion=suggest.topics)
]


@command(app, "list")
def list_topics(session: Session) -> None:
    """The dead-letter topics, how many records they hold, and the most frequent reason."""
    from penstock.operate.letters import letter_topics, letters

    rows = []
    for topic in letter_topics(session):
        reasons: dict[str, int] = {}
        for letter in letters(session, topic):
            reason = letter["reason"] or "unknown"
            reasons[reason] = reasons.get(reason, 0) + 1
        most = max(reasons, key=lambda reason: reasons[reason]) if reasons else None
        rows.append({"topic": topic, "records": sum(reasons.values()), "most_frequent_reason": most})
    session.output.rows(
        rows, ["topic", "records", "most_frequent_reason"], right=["records"], empty="there is no dead-letter topic"
    )


@command(app)
def show(
    session: Session,
    topic: Topic,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many.")] = 20,
    stack: Annotated[bool, typer.Option("--stack", help="With the stack trace.")] = False,
) -> None:
    """The records: where they came from, what is wrong with them, and what they hold."""
    from penstock.operate.letters import find_letters, letters

    name = find_letters(session, topic)
    shown = 0
    for letter in letters(session, name):
        if shown >= limit:
            session.output.note(f"only the first {limit} are shown; -n shows more")
            break
        shown += 1
        record = letter.pop("record")
        if session.output.as_json:
            session.output.record({**letter, "key": _json(record.key), "value": _json(record.value)})
            continue
        origin = "-"
        if letter["source_topic"] is not None:
            origin = f"{letter['source_topic']}-{letter['source_partition']} at {letter['source_offset']}"
        session.output.text(f"{name}-{letter['partition']} at {letter['offset']}, from {origin}: {letter['reason']}")
        session.output.text(f"  key   {_text(record.key)}")
        session.output.text(f"  value {_text(record.value)}")
        if stack and letter["stack"]:
            session.output.text("  " + letter["stack"].rstrip().replace("\n", "\n  "))
    if not shown:
        session.output.note(f"{name} is empty")


def _text(value: bytes | None) -> str:
    if value is None:
        return "-"
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return repr(value)


def _json(value: bytes | None) -> Any:
    if value is None:
        return None
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


@command(app)
def redrive(
    session: Session,
    topic: Topic,
    to: Annotated[str | None, typer.Option(help="Another topic than the one a record came from.")] = None,
    reason: Annotated[str | None, typer.Option(help="Only records whose reason holds this text.")] = None,
    skip: Annotated[bool, typer.Option("--skip", help="Write nothing, only note them as dealt with.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
) -> None:
    """Write dead letters back to where they came from, as they were, each once.

    Topic, partition, key, value, headers and timestamp are those of the record, unless the topic would refuse or expire
    it: that is said. What --reason leaves out is there for the next redrive, and so are rows that missed an expectation
    after a pipeline had changed them, unless --to names a topic for them. `--to <pipeline>.retry` is read by that
    pipeline alone, beside its source and as if from there; the topic is made when it is needed.
    """
    from penstock.operate.letters import find_letters, other_readers
    from penstock.pipelines import redrive as work

    name = find_letters(session, topic)
    if reason is not None and not reason.strip():
        raise usage_error("--reason is empty")
    try:
        wanted = work.Wanted(to=to, reason=reason, skip=skip)
        result = work.redrive(session.properties, name, wanted, dry_run=dry_run)
    except work.RedriveFailed as error:
        raise UserError(
            str(error), "nothing of the last transaction was written; run it again", ExitCode.FAILED
        ) from None
    readers = {target: other_readers(session, target) for target in result.topics}
    row = {
        "topic": name,
        "redriven": result.written,
        "skipped": result.skipped,
        "left": result.left,
        "refused": result.refused,
        "restamped": result.restamped,
        "moved": result.moved,
        "to": result.topics,
        "also_read_by": {target: groups for target, groups in readers.items() if groups},
        "dry_run": dry_run,
    }
    verb = "would be" if dry_run else "are"
    told = f"{result.written} records {verb} redriven, {result.skipped} skipped, {result.left} left"
    for why, count in result.refused.items():
        told += f"\n{count} of those left: {why}"
    if result.restamped:
        told += f"\n{result.restamped} of them with the time of now: their topic would refuse or expire the old one"
    if result.moved:
        told += f"\n{result.moved} of them to the partition of their key: theirs is not there any more"
    for target, groups in readers.items():
        if groups:
            told += f"\n{target} is also read by {', '.join(groups)}: they get these records once more"
            told += f" (--to {name.removesuffix('.dlq')}.retry, which only the pipeline reads, avoids it)"
    session.output.result(row, told)
