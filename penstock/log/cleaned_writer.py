"""Writes one compacted segment: `.log.cleaned` and its indexes, synced before anyone may swap them in."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from penstock.log.files import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    file_name,
    fsync_path,
)
from penstock.log.offset_index import OffsetIndex
from penstock.log.time_index import TimeIndex
from penstock.log.txn_index import AbortedEntry, TxnIndex
from penstock.protocol.batch import BatchHeader


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
            path.unlink(missing_ok=True)
        self._offsets = OffsetIndex(self._paths[INDEX_SUFFIX], base_offset)
        self._offsets.file.create()
        self._times = TimeIndex(self._paths[TIME_INDEX_SUFFIX], base_offset)
        self._times.file.create()
        self._aborted = TxnIndex(self._paths[TXN_INDEX_SUFFIX], exists=False)
        self._log: BinaryIO = self._paths[LOG_SUFFIX].open("wb", buffering=1024 * 1024)

    def append(self, batch: bytes | memoryview) -> None:
        header = BatchHeader.parse(batch)
        position = self.size
        self._log.write(batch)
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

    def add_aborted(self, entry: AbortedEntry) -> None:
        self._aborted.append(entry)

    def finish(self, modified_ns: int) -> None:
        """Everything to the disk, with the modification time of the last source (retention looks at it)."""
        self._log.flush()
        self._log.close()
        if self.max_timestamp >= 0:
            self._times.append_if_later(self.max_timestamp, self._max_timestamp_offset)
        self._offsets.file.write()
        self._times.file.write()
        for path in self._paths.values():
            fsync_path(path)
        os.utime(self._paths[LOG_SUFFIX], ns=(modified_ns, modified_ns))

    def close(self) -> None:
        self._log.close()
