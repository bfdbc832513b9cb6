"""Files of a log folder: their names, open files that close themselves, and durable writes."""

from __future__ import annotations

import errno
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from penstock.log import disk

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TXN_INDEX_SUFFIX: Final = ".txnindex"
SNAPSHOT_SUFFIX: Final = ".snapshot"
DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)

PARTITION_METADATA: Final = "partition.metadata"
LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"

# Refusals that pass by themselves: the disk is full or the process has too many files open, but nothing is broken.
NO_SPACE_ERRNOS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM})

_OPEN_FILES_MAX: Final = 512
_IOV_MAX: Final = 1024
_SMALL_FILE_BYTES: Final = 64 * 1024


class LogFile:
    """An open file. It closes when the last segment or region that holds it is gone: no reader loses its bytes."""

    __slots__ = ("__weakref__", "fd", "path", "suspect")

    def __init__(self, path: Path | str, flags: int = os.O_RDONLY) -> None:
        self.fd = -1
        self.suspect = False  # it had less than its segment said: to be looked at before the next region is promised
        self.path = path
        self.fd = disk.open(path, flags | os.O_CLOEXEC, 0o600)

    def fileno(self) -> int:
        return self.fd

    def __del__(self, close: Callable[[int], None] = os.close) -> None:  # bound early: modules may be gone at exit
        fd = self.fd
        if fd >= 0:
            self.fd = -1
            close(fd)


class OpenFiles:
    """The recently read files of old segments, so that thousands of segments need no descriptor each."""

    def __init__(self, capacity: int = _OPEN_FILES_MAX) -> None:
        self._capacity = capacity
        self._files: OrderedDict[str, LogFile] = OrderedDict()
        self._lock = threading.Lock()  # loader threads come through here, too

    def get(self, path: str) -> LogFile:
        with self._lock:
            file = self._files.get(path)
            if file is None:
                file = self._files[path] = LogFile(path)
                if len(self._files) > self._capacity:
                    self._files.popitem(last=False)
            else:
                self._files.move_to_end(path)
            return file

    def forget(self, path: str) -> None:
        """The name means another file (or none) from now on; readers of the old one keep it."""
        with self._lock:
            self._files.pop(path, None)


# Shared by all logs of the process: the descriptor limit is the process's, too.
OPEN_FILES: Final = OpenFiles()


def file_name(offset: int, suffix: str) -> str:
    """Kafka's name: twenty digits and the suffix."""
    return f"{offset:020d}{suffix}"


def offset_of(name: str) -> int | None:
    """The offset that a segment's or snapshot's file name begins with; None for other files."""
    digits = name.partition(".")[0]
    return int(digits) if len(digits) == 20 and digits.isascii() and digits.isdigit() else None


def read_small(path: str) -> bytes | None:
    """A file of a few bytes; None if it is missing. Three system calls, no buffers: a start reads thousands."""
    try:
        fd = disk.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        content = disk.read(fd, _SMALL_FILE_BYTES)
        while len(content) and len(content) % _SMALL_FILE_BYTES == 0:
            more = disk.read(fd, _SMALL_FILE_BYTES)
            if not more:
                break
            content += more
        return content
    finally:
        os.close(fd)


def fsync_path(path: Path | str, missing_ok: bool = True) -> None:
    """Make a file's content durable; a file that retention took away meanwhile needs none."""
    try:
        fd = disk.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        if missing_ok:
            return
        raise
    try:
        disk.fsync(fd)
    finally:
        os.close(fd)


def fsync_directory(path: Path | str) -> None:
    """New names and renames last only after this."""
    fsync_path(path, missing_ok=True)


def write_durably(path: Path, content: bytes) -> None:
    """Replace a small file so that a crash leaves either the old or the new one, whole."""
    temporary = path.with_name(path.name + ".tmp")
    write_file(temporary, content, durable=True)
    disk.replace(temporary, path)
    fsync_directory(path.parent)


def write_file(path: Path, content: bytes, durable: bool) -> None:
    """Create or overwrite; `durable` also syncs the content (not the name)."""
    fd = disk.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        write_all(fd, [content], 0)
        if durable:
            disk.fsync(fd)
    finally:
        os.close(fd)


def write_all(fd: int, buffers: Sequence[bytes | bytearray | memoryview], position: int) -> None:
    """Write all buffers from `position` on, however the system cuts the calls short. OSError as it comes."""
    index = 0
    while index < len(buffers):
        chunk = buffers[index : index + _IOV_MAX]
        written = disk.pwritev(fd, chunk, position)
        position += written
        if written == sum(map(len, chunk)):
            index += len(chunk)
            continue
        for buffer in chunk:
            if written < len(buffer):
                # The call ended inside (or before) this buffer: finish it alone, so that the system names its reason.
                position += _write_rest(fd, memoryview(buffer)[written:], position)
                index += 1
                break
            written -= len(buffer)
            index += 1


def _write_rest(fd: int, rest: memoryview, position: int) -> int:
    total = len(rest)
    while len(rest):
        done = disk.pwrite(fd, rest, position)
        if done == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        position += done
        rest = rest[done:]
    return total


def unlink_all(paths: Iterable[Path]) -> None:
    """Unlink what is still there."""
    for path in paths:
        disk.discard(path)
