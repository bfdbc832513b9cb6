"""All that a search finds, as a file: one JSON object a line, as `penstock consume --json` prints it.

Nothing is gathered: lines leave as they are found. What a role may not see is masked before, as everywhere.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator

from penstock.console.data.messages import Key, Reader, Wanted, predicate
from penstock.console.data.viewer import Viewer
from penstock.operate.errors import ExitCode, UserError
from penstock.operate.record_format import json_line
from penstock.protocol.records import Headers, Record

MOST_AT_ONCE = 2  # of one user
_running: Counter[str] = Counter()
_lock = threading.Lock()


class _Message:
    """A record as the printing of consumed ones takes it."""

    def __init__(self, key: Key, record: Record) -> None:
        self._key, self._record = key, record

    def topic(self) -> str:
        return self._key[0]

    def partition(self) -> int:
        return self._key[1]

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


def download(viewer: Viewer, topic: str, wanted: Wanted) -> Iterator[bytes]:
    """From the position on (from the beginning if that is `newest`) to the present end, partition by partition.

    What is wrong with the question is raised here, not in the middle of the file.
    """
    accepts = predicate(wanted)
    reader = Reader(viewer, topic, wanted.partitions)
    positions = reader.positions("oldest" if wanted.start == "newest" else wanted.start)
    user = viewer.user.name
    with _lock:
        if _running[user] >= MOST_AT_ONCE:
            hint = "wait for one to end, or cancel it"
            raise UserError(f"{MOST_AT_ONCE} downloads of {user} are running already", hint, ExitCode.REFUSED)

    def lines() -> Iterator[bytes]:
        with _lock:
            _running[user] += 1
        try:
            for window, _ in reader.forwards(positions):
                viewer.require("viewer")
                found = [json_line(_Message(key, record)) for key, record in window if accepts(topic, key[1], record)]
                if found:
                    yield b"".join(found)
        finally:
            with _lock:
                _running[user] -= 1

    return lines()
