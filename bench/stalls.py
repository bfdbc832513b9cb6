"""How long the event loop of a measured broker stood still: each watched broker keeps its worst in a file of its own.

The broker (`bench.watched_broker`) looks every few milliseconds how late its timer came, and takes off what it spent
waiting for a core that another process had. `watching()` counts only what happens inside of it: not the preparation.
"""

from __future__ import annotations

import atexit
import contextlib
import mmap
import os
import shutil
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

FOLDER_VARIABLE = "PENSTOCK_BENCH_STALLS"
PERIOD_SECONDS = 0.01
_SECONDS = struct.Struct("d")


class Note:
    """The longest stall of one process, shared with whoever measures it."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(_SECONDS.size))
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), _SECONDS.size)

    @property
    def seconds(self) -> float:
        return float(_SECONDS.unpack_from(self._shared)[0])

    @seconds.setter
    def seconds(self, value: float) -> None:
        _SECONDS.pack_into(self._shared, 0, value)


class _Session:
    """What one run of benchmarks has seen so far."""

    def __init__(self) -> None:
        self.folder: Path | None = None
        self.worst_seconds: float | None = None


_session = _Session()


def command() -> list[str]:
    """The module that runs a watched broker; brokers inherit where to write."""
    if _session.folder is None:
        _session.folder = Path(tempfile.mkdtemp(prefix="penstock-stalls-"))
        os.environ[FOLDER_VARIABLE] = str(_session.folder)
        atexit.register(shutil.rmtree, _session.folder, ignore_errors=True)
    return ["-m", "bench.watched_broker"]


@contextlib.contextmanager
def watching() -> Iterator[None]:
    notes = [Note(path) for path in _session.folder.iterdir()] if _session.folder is not None else []
    for note in notes:
        note.seconds = 0.0
    yield
    for note in notes:
        _session.worst_seconds = max(_session.worst_seconds or 0.0, note.seconds)


def take_worst_ms() -> float | None:
    """The longest stall watched since the last call; none if nothing was."""
    worst, _session.worst_seconds = _session.worst_seconds, None
    return None if worst is None else worst * 1e3
