"""One segment of a log: its file of batches and the three indexes beside it.

A segment that nobody reads costs a small object and no descriptor. Only the newest one (the active one) keeps its file
open, from its first use on, and remembers where its latest batches lie, so that reads at the tail touch no index.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from penstock.log import cold, disk
from penstock.log.files import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    OPEN_FILES,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    LogFile,
    file_name,
)
from penstock.log.offset_index import OffsetIndex
from penstock.log.time_index import TimeIndex
from penstock.log.txn_index import TxnIndex
from penstock.protocol.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC, BatchHeader, InvalidBatch

_SCAN_BYTES: Final = 8 * 1024
_SKETCH: Final = Struct(">qi4xb6xi")  # base offset, length, magic, last offset delta: enough to walk
RECENT_MAX: Final = 512
UNKNOWN_ROLL_TIME: Final = -2  # below every timestamp: asks for the slow check


class Cut(NamedTuple):
    """How a segment looks after a truncation."""

    offset: int
    position: int
    index_entries: int
    time_entries: int
    max_timestamp: int
    max_timestamp_offset: int


class Segment:
    """See the module. `size` counts written bytes, `end_position` staged ones too."""

    __slots__ = (
        "_file",
        "_first_timestamp",
        "_takes_appends",
        "base_offset",
        "bytes_since_index",
        "created_ms",
        "directory",
        "end_position",
        "exists",
        "jitter_ms",
        "max_timestamp",
        "max_timestamp_offset",
        "offset_index",
        "path",
        "prepare",
        "recent_lasts",
        "recent_positions",
        "roll_after_timestamp",
        "size",
        "time_index",
        "txn_index",
    )

    def __init__(self, directory: Path, base_offset: int, size: int, has_txn_index: bool, created_ms: int) -> None:
        self.directory = directory
        self.base_offset = base_offset
        stem = f"{directory}/{file_name(base_offset, '')}"  # text: a start makes thousands of these
        self.path = stem + LOG_SUFFIX
        self.size = size
        self.end_position = size
        self.created_ms = created_ms
        self.offset_index = OffsetIndex(stem + INDEX_SUFFIX, base_offset)
        self.time_index = TimeIndex(stem + TIME_INDEX_SUFFIX, base_offset)
        self.txn_index = TxnIndex(stem + TXN_INDEX_SUFFIX, has_txn_index)
        self.bytes_since_index = 0
        self.jitter_ms = 0
        self.max_timestamp = UNKNOWN_ROLL_TIME
        self.max_timestamp_offset = base_offset
        self.roll_after_timestamp = UNKNOWN_ROLL_TIME
        self.recent_lasts = array("q")
        self.recent_positions = array("q")
        self.exists = True
        self.prepare: Callable[[], object] | None = None
        """What has to be done before the first file can be made: a folder that could not be made yet."""
        self._first_timestamp: int | None = None
        self._file: LogFile | None = None
        self._takes_appends = False

    @classmethod
    def create(cls, directory: Path, base_offset: int, created_ms: int) -> Segment:
        """New empty files; leftovers of the same name are overwritten."""
        segment = cls.promise(directory, base_offset, created_ms)
        segment.file()
        return segment

    @classmethod
    def promise(cls, directory: Path, base_offset: int, created_ms: int) -> Segment:
        """New and empty; its files come with its first batch, so that thousands of new logs cost little."""
        segment = cls(directory, base_offset, 0, False, created_ms)
        segment.offset_index.file.expect_nothing()
        segment.time_index.file.expect_nothing()
        segment.max_timestamp = -1
        segment.exists = False
        segment._takes_appends = True
        return segment

    # -- files

    def file(self) -> LogFile:
        """The open file; of an old segment for the moment only."""
        file = self._file
        if file is not None:
            return file
        return self._open_to_append() if self._takes_appends else OPEN_FILES.get(self.path)

    def _open_to_append(self) -> LogFile:
        if self.exists:
            OPEN_FILES.forget(self.path)
            file = LogFile(self.path, os.O_RDWR)
        else:
            self.prepare_folder()
            self.txn_index.reset()
            file = LogFile(self.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            self.offset_index.file.make_file()
            self.time_index.file.make_file()
            self.exists = True
        self._file = file
        return file

    def prepare_folder(self) -> None:
        """OSError as long as the disk refuses."""
        if self.prepare is not None:
            self.prepare()
            self.prepare = None

    def is_open(self) -> bool:
        """Whether somebody has used the file since this segment takes appends."""
        return self._file is not None

    def activate(self) -> None:
        """Become the segment that appends go to."""
        self._takes_appends = True
        self.largest_timestamp()
        self.roll_after_timestamp = UNKNOWN_ROLL_TIME

    def deactivate(self) -> None:
        """No more appends: the indexes get their last entries and reach the disk (unsynced), the file may close."""
        self.finish_indexes()
        self._takes_appends = False
        self._file = None
        self.recent_lasts = array("q")
        self.recent_positions = array("q")

    def finish_indexes(self) -> None:
        """Force the newest timestamp into the time index and write both index files."""
        if self.largest_timestamp() >= 0:
            self.time_index.append_if_later(self.max_timestamp, self.max_timestamp_offset)
        self.write_indexes()

    def write_indexes(self) -> None:
        self.offset_index.file.write()
        self.time_index.file.write()

    def close(self) -> None:
        self._takes_appends = False
        self._file = None
        OPEN_FILES.forget(self.path)

    def paths(self) -> list[Path]:
        return [self.directory / file_name(self.base_offset, suffix) for suffix in SEGMENT_SUFFIXES]

    def rename_deleted(self) -> list[Path]:
        """Rename all files away, to be unlinked later; their new names. Readers keep what they have open."""
        self.close()
        renamed: list[Path] = []
        for path in self.paths():
            target = path.with_name(path.name + DELETED_SUFFIX)
            try:
                disk.replace(path, target)
            except FileNotFoundError:
                continue
            renamed.append(target)
        return renamed

    # -- times

    def largest_timestamp(self) -> int:
        """Highest timestamp of the segment, -1 if it has none; read from the time index once."""
        if self.max_timestamp == UNKNOWN_ROLL_TIME:
            self.max_timestamp, self.max_timestamp_offset = self.time_index.last_entry()
        return self.max_timestamp

    def retention_timestamp(self) -> int:
        """Highest timestamp, or the file's age when records carry none."""
        largest = self.largest_timestamp()
        if largest >= 0:
            return largest
        return Path(self.path).stat().st_mtime_ns // 1_000_000

    def first_timestamp(self) -> int:
        """Max timestamp of the first batch; -1 if there is none."""
        if self._first_timestamp is None:
            header = next(self.headers(), None)
            if header is None:
                return -1
            self._first_timestamp = header.max_timestamp
        return self._first_timestamp

    # -- appends (called by the log for staged batches)

    def note_batch(self, last_offset: int, position: int, max_timestamp: int) -> None:
        """Keep times and the memory of the tail up to date for one more batch."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if len(self.recent_lasts) >= RECENT_MAX:
            self.forget_older_half()
        self.recent_lasts.append(last_offset)
        self.recent_positions.append(position)

    def forget_older_half(self) -> None:
        """In place: the memory of the tail is bounded."""
        del self.recent_lasts[: RECENT_MAX // 2]
        del self.recent_positions[: RECENT_MAX // 2]

    def index_batch(self, last_offset: int, position: int) -> None:
        """An entry for the batch that begins at `position`, whose times `note_batch` has seen."""
        self.offset_index.append(last_offset, position)
        self.time_index.append_if_later(self.max_timestamp, self.max_timestamp_offset)
        self.bytes_since_index = 0

    # -- lookups

    def place(self, offset: int) -> tuple[int, int] | None:
        """(position, size) of the first batch whose last offset reaches `offset`; None if the segment ends before."""
        recent = self.recent_lasts
        if recent and offset >= recent[0]:
            index = bisect_left(recent, offset)
            if index == len(recent):
                return None
            positions = self.recent_positions
            position = positions[index]
            after = positions[index + 1] if index + 1 < len(positions) else self.end_position
            return position, after - position
        try:
            return self.find_from(self.offset_index.lookup(offset), offset)
        except cold.ColdPages as pages:
            pages.warm = partial(self._another().place, offset)
            raise

    def _another(self) -> Segment:
        """The same files for a thread."""
        return Segment(self.directory, self.base_offset, self.size, False, self.created_ms)

    def find_from(self, position: int, offset: int) -> tuple[int, int] | None:
        """(position, size) of the first batch at or behind `position` whose last offset reaches `offset`."""
        fd = self.file().fd
        stop = self.size
        unpack = _SKETCH.unpack_from
        must_not_wait = cold.must_not_wait()
        while position < stop:
            if must_not_wait:
                cold.look(fd, min(_SCAN_BYTES, stop - position), position)
            chunk = disk.pread(fd, min(_SCAN_BYTES, stop - position), position)
            relative = 0
            usable = len(chunk) - _SKETCH.size
            while relative <= usable:
                base_offset, length, magic, last_delta = unpack(chunk, relative)
                if magic != MAGIC or length < HEADER_BYTES - LOG_OVERHEAD_BYTES:
                    raise InvalidBatch(f"no batch at {position + relative} of {self.path}")
                size = length + LOG_OVERHEAD_BYTES
                if base_offset + last_delta >= offset:
                    return position + relative, size
                relative += size
            if not relative:
                raise InvalidBatch(f"{self.path} ends inside the batch at {position}")
            position += relative
        return None

    def headers(self, position: int = 0, end: int | None = None) -> Iterator[BatchHeader]:
        """Headers of all batches from a batch boundary on; positions are those in the file. InvalidBatch if broken."""
        file = self.file()
        stop = self.size if end is None else end
        chunk = b""
        chunk_start = position
        while position < stop:
            relative = position - chunk_start
            if relative + HEADER_BYTES > len(chunk):
                chunk = disk.pread(file.fd, min(_SCAN_BYTES, stop - position), position)
                chunk_start = position
                relative = 0
            header = BatchHeader.parse(chunk, relative)
            header = header._replace(position=position)
            if header.size > stop - position:
                raise InvalidBatch(f"batch at {position} of {self.path} reaches beyond {stop}")
            yield header
            position += header.size

    def there(self, file: LogFile, position: int, length: int, first_size: int) -> int:
        """How much of a region the file really has. InvalidBatch if not even its first batch: who has been promised
        bytes that do not come can only be cut off."""
        end = os.fstat(file.fd).st_size
        if position + length <= end:
            return length
        if position + min(first_size, length) > end:
            raise InvalidBatch(f"{self.path} has {end} bytes instead of {self.size}: no batch at {position}")
        return end - position

    def read_at(self, position: int, size: int) -> bytes:
        """Exactly these bytes; InvalidBatch if the file is shorter."""
        data = disk.pread(self.file().fd, size, position)
        while len(data) < size:
            more = disk.pread(self.file().fd, size - len(data), position + len(data))
            if not more:
                raise InvalidBatch(f"{self.path} ends inside the batch at {position}")
            data += more
        return data

    def next_offset(self) -> int:
        """Offset behind the last batch, by a scan from the last index entry."""
        position = self.offset_index.file.get(-1)[1] if len(self.offset_index.file) else 0
        last = self.base_offset
        for header in self.headers(position):
            last = header.next_offset
        return last

    # -- truncation

    def plan_cut(self, offset: int) -> Cut:
        """Where the file ends if everything from the batch that holds `offset` on goes. Staged bytes must have been
        written. Reads only."""
        place = self.place(offset)
        position = self.size if place is None else place[0]
        entries = self.offset_index.count_below(offset)
        time_entries = self.time_index.count_below(offset)
        timestamp, timestamp_offset = self.time_index.entry_at(time_entries - 1)
        # The time index knows only a part, the batches behind its last entry tell the rest.
        start = min(self.offset_index.lookup(timestamp_offset), position)
        for header in self.headers(start, position):
            if header.max_timestamp > timestamp:
                timestamp, timestamp_offset = header.max_timestamp, header.last_offset
        self.txn_index.entries()
        return Cut(offset, position, entries, time_entries, timestamp, timestamp_offset)

    def cut(self, cut: Cut) -> None:
        """The log's bytes go first: an index that knows too much is found out at a start, one that knows too little of
        aborted transactions is not."""
        if cut.position < self.size:
            disk.truncate(self.path, cut.position)
            self.size = self.end_position = cut.position
        self.offset_index.file.keep(cut.index_entries)
        self.time_index.keep(cut.time_entries)
        self.txn_index.truncate_to(cut.offset)
        self.bytes_since_index = 0
        self.forget_recent()
        self._first_timestamp = None
        self.roll_after_timestamp = UNKNOWN_ROLL_TIME
        self.max_timestamp, self.max_timestamp_offset = cut.max_timestamp, cut.max_timestamp_offset

    def forget_recent(self) -> None:
        self.recent_lasts = array("q")
        self.recent_positions = array("q")
