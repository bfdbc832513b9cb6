"""A record as a line of a downloaded file: the JSON that `penstock consume --json` prints."""

from __future__ import annotations

from penstock.operate.record_format import json_line
from penstock.protocol.records import Headers, Record


class _Message:
    """A record as the printing of consumed ones takes it."""

    def __init__(self, topic: str, partition: int, record: Record) -> None:
        self._topic, self._partition, self._record = topic, partition, record

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._record.offset

    def timestamp(self) -> tuple[int, int]:
        return 1, self._record.timestamp

    def key(self) -> bytes | None:
        return self._record.key

    def value(self) -> bytes | None:
        return self._record.value

    def headers(self) -> Headers:
        return self._record.headers


def line(topic: str, partition: int, record: Record) -> bytes:
    return json_line(_Message(topic, partition, record))
