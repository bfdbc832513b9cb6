"""The first records of some topics, read without Spark: to infer a schema, to show a topic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from penstock.client.errors import KafkaError
from penstock.client.records import LATEST
from penstock.client.sync import SyncClient
from penstock.protocol.batch import read_records
from penstock.protocol.committed_batches import committed_batches
from penstock.protocol.records import Record

_MAX_RECORDS: Final = 1000


def first_values(client: SyncClient, topics: Iterable[str], *, start: int) -> list[bytes]:
    """Up to a thousand values from the topics' beginning."""
    values: list[bytes] = []
    for topic in topics:
        found = records_of(client, topic, start=start, limit=_MAX_RECORDS - len(values))
        values += [record.value for _, record in found if record.value is not None]
    return values


def records_of(
    client: SyncClient, topic: str, *, start: int, limit: int, tail: int | None = None
) -> Iterator[tuple[int, Record]]:
    """(partition, record) of committed records, partition by partition; `tail`: only so many offsets at the end."""
    view = client.metadata([topic])
    found = view.topics.get(topic)
    if found is None or found.error_code:
        raise KafkaError(found.error_code if found is not None else 3, f"topic {topic!r}")
    keys = [(topic, index) for index in sorted(found.partitions)]
    begins = client.list_offsets(dict.fromkeys(keys, start), read_committed=True)
    ends = client.list_offsets(dict.fromkeys(keys, LATEST), read_committed=True)
    taken = 0
    for key in keys:
        position, end = begins[key].offset, ends[key].offset
        if tail is not None:
            position = max(position, end - tail)
        while 0 <= position < end:
            fetched = client.fetch({key: position}, read_committed=True, max_wait_ms=100)[key]
            if fetched.error_code:
                raise KafkaError(fetched.error_code, f"read {topic}-{key[1]}")
            before = position
            for header, shown in committed_batches(fetched.records, fetched.aborted_transactions):
                for record in read_records(fetched.records, header) if shown else ():
                    if before <= record.offset < end:
                        yield key[1], record
                        taken += 1
                        if taken >= limit:
                            return
                position = header.last_offset + 1
            if position == before:
                break
