"""Whole small topics read at once: journals, specs and progress that commands look at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.operate import admin
from penstock.protocol.batch import batch_bytes, iterate_batches, read_records

if TYPE_CHECKING:
    from penstock.operate.session import Session


def records(session: Session, topic: str) -> Iterator[tuple[bytes | None, bytes | None]]:
    """(key, value) of every record, partition by partition."""
    view = session.client.metadata([topic]).topics[topic]
    keys = [(topic, index) for index in view.partitions]
    starts = admin.list_offsets(session, dict.fromkeys(keys, admin.EARLIEST))
    ends = admin.list_offsets(session, dict.fromkeys(keys, admin.LATEST))
    for key in keys:
        offset, end = starts[key][0], ends[key][0]
        while offset < end:
            data = session.client.fetch({key: offset}, max_bytes=8 << 20)[key].records
            moved = offset
            for header in iterate_batches(data):
                moved = header.next_offset
                if not header.is_control:
                    yield from ((r.key, r.value) for r in read_records(batch_bytes(data, header)) if r.offset >= offset)
            if moved == offset:
                break
            offset = moved


def latest_values(session: Session, topic: str) -> list[tuple[bytes, bytes]]:
    """The newest value of each key; tombstones remove theirs."""
    found: dict[bytes, bytes] = {}
    for key, value in records(session, topic):
        if key is None:
            continue
        if value is None:
            found.pop(key, None)
        else:
            found[key] = value
    return list(found.items())
