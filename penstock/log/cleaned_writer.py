"""Writes one compacted segment: `.log.cleaned` and its indexes, synced before anyone may swap them in."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from penstock.log import disk
from penstock.log.files import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    LogFile,
    file_name,
    fsync_path,
    write_all,
)
from penstock.log.offset_index import OffsetIndex
from penstock.log.time_index import TimeIndex
from penstock.log.txn_index import AbortedEntry, TxnIndex
from penstock.protocol.batch import BatchHeader

_WRITE_BYTES: Final = 1024 * 1024


class CleanedWriter:
    """Batches go in by rising offset."""

    def __init__(self, directory: Path, base_offset: int, index_interval_bytes: int) -> None:
        self.size = 0
        self.max_timestamp = -1
        self._max_timestamp_offset = base_offset
        self._interval = index_interval_bytes
        self._since_index = 0
        self._paths = {
            suffix: directory / (file_name(base_offset, suffix) + CLEANED_SUFFIX) for suffix in SEGMENT_SUFFIXES
        }
        for path in self._paths.values():
            disk.discard(path)
        self._offsets = OffsetIndex(self._paths[INDEX_SUFFIX], base_offset)
        self._offsets.file.create()
        self._times = TimeIndex(self._paths[TIME_INDEX_SUFFIX], base_offset)
        self._times.file.create()
        self._aborted = TxnIndex(self._paths[TXN_INDEX_SUFFIX], exists=False)
        self._log = LogFile(self._paths[LOG_SUFFIX], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        self._waiting: list[bytes | memoryview] = []
        self._written = 0

    def append(self, batch: bytes | memoryview) -> None:
        header = BatchHeader.parse(batch)
        position = self.size
        self._waiting.append(batch)
        if position + len(batch) - self._written >= _WRITE_BYTES:
            self._write(position + len(batch))
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp = header.max_timestamp
            self._max_timestamp_offset = header.last_offset
        if self._since_index > self._interval:
            self._offsets.append(header.last_offset, position)
            self._times.append_if_later(self.max_timestamp, self._max_timestamp_offset)
            self._since_index = 0
            self._offsets.file.write_if_due()
            self._times.file.write_if_due()
        self._since_index += len(batch)
        self.size += len(batch)

    def _write(self, end: int) -> None:
        write_all(self._log.fd, self._waiting, self._written)
        self._waiting = []
        self._written = end

    def add_aborted(self, entry: AbortedEntry) -> None:
        self._aborted.append(entry)

    def finish(self, modified_ns: int) -> None:
        """Everything to the disk, with the modification time of the last source (retention looks at it)."""
        self._write(self.size)
        if self.max_timestamp >= 0:
            self._times.append_if_later(self.max_timestamp, self._max_timestamp_offset)
        self._offsets.file.write()
        self._times.file.write()
        for path in self._paths.values():
            fsync_path(path)
        os.utime(self._paths[LOG_SUFFIX], ns=(modified_ns, modified_ns))
