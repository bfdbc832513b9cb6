"""Dead letters: which topics hold them, and each with where it came from and why it is there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.client.records import EARLIEST
from penstock.operate.admin import committed_offsets
from penstock.operate.errors import not_found
from penstock.operate.groups import all_groups

if TYPE_CHECKING:
    from penstock.operate.session import Session

PREFIX = "penstock.dlq."
SUFFIX = ".dlq"
MANY = 10_000_000


def letter_topics(session: Session) -> list[str]:
    from penstock.pipelines.control.store import PipelineStore

    present = session.client.metadata(None).topics
    named = {item.parsed().dead_letter_topic for item in PipelineStore(session.client).all().values()}
    return sorted(name for name in present if name.endswith(SUFFIX) or name in named)


def find_letters(session: Session, name: str) -> str:
    present = session.client.metadata(None).topics
    for candidate in (f"{name}{SUFFIX}", name):
        if candidate in present:
            return candidate
    raise not_found("dead-letter topic", name, letter_topics(session))


def other_readers(session: Session, topic: str) -> list[str]:
    """Groups beside the pipelines' own that have positions in a topic."""
    groups = [name for name in all_groups(session) if not name.startswith(("penstock.", "penstock-redrive-"))]
    return [name for name in sorted(groups) if any(key[0] == topic for key in committed_offsets(session, name))]


def letters(session: Session, topic: str) -> Iterator[dict[str, Any]]:
    from penstock.pipelines.connectors.topic_sample import records_of

    for partition, record in records_of(session.client, topic, start=EARLIEST, limit=MANY):
        own = {name.removeprefix(PREFIX): value for name, value in record.headers if name.startswith(PREFIX)}
        told = {name: (value or b"").decode("utf-8", "replace") for name, value in own.items()}
        yield {
            "partition": partition,
            "offset": record.offset,
            "timestamp_ms": record.timestamp,
            "reason": told.get("reason"),
            "stack": told.get("stack"),
            "pipeline": told.get("pipeline"),
            "source": told.get("source"),
            "source_topic": told.get("topic"),
            "source_partition": _number(told.get("partition")),
            "source_offset": _number(told.get("offset")),
            "expectation": told.get("expectation"),
            "record": record,
        }


def _number(text: str | None) -> int | None:
    """A letter whose headers were damaged is shown all the same."""
    return int(text) if text is not None and text.isascii() and text.isdigit() else None
