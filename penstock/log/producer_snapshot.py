"""Producer snapshots (`.snapshot`): the producer state up to an offset, so that a start need not read the whole log."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from struct import Struct
from typing import Final

from penstock.log import disk
from penstock.log.files import (
    NO_SPACE_ERRNOS,
    SNAPSHOT_SUFFIX,
    file_name,
    fsync_directory,
    offset_of,
    read_small,
    write_file,
)
from penstock.log.producer_state import NO_OFFSET, NO_SEQUENCE, KeptBatch, ProducerEntry, ProducerState
from penstock.protocol.crc import crc32c

logger = logging.getLogger(__name__)

MANY_PRODUCERS: Final = 2000
"""More than these take too long to write while the loop waits."""
ENTRIES_IN_ONE_GO: Final = 1000
BREATH_SECONDS: Final = 0.001  # about what these take: the loop gets every second millisecond
VERSION: Final = 1
_HEAD: Final = Struct(">hI")
_COUNT: Final = Struct(">i")
ENTRY: Final = Struct(">qhiqiqiq")


class InvalidSnapshot(Exception):
    """The file is cut, of another version, or its checksum differs: the next older one is tried."""


def encode_snapshot(entries: Iterable[ProducerEntry], breathe: Callable[[], None] | None = None) -> bytes:
    """Only the newest batch of each producer is kept, as in Kafka. `breathe` is called every so often: a thread that
    encodes very many lets others run in between."""
    packed: list[bytes] = []
    for entry in entries:
        if breathe is not None and not len(packed) % ENTRIES_IN_ONE_GO:
            breathe()
        if entry.batches:
            _, last_sequence, last_offset, offset_delta, _ = entry.batches[-1]
        else:
            last_sequence, last_offset, offset_delta = NO_SEQUENCE, NO_OFFSET, 0
        packed.append(
            ENTRY.pack(
                entry.producer_id,
                entry.epoch,
                last_sequence,
                last_offset,
                offset_delta,
                entry.last_timestamp,
                entry.coordinator_epoch,
                entry.txn_first_offset,
            )
        )
    checked = _COUNT.pack(len(packed)) + b"".join(packed)
    return _HEAD.pack(VERSION, crc32c(checked)) + checked


def decode_snapshot(content: bytes) -> list[ProducerEntry]:
    if len(content) < _HEAD.size + _COUNT.size:
        raise InvalidSnapshot("the file is cut")
    version, crc = _HEAD.unpack_from(content)
    if version != VERSION:
        raise InvalidSnapshot(f"unknown version {version}")
    if crc32c(memoryview(content)[_HEAD.size :]) != crc:
        raise InvalidSnapshot("the checksum differs")
    count = _COUNT.unpack_from(content, _HEAD.size)[0]
    body = memoryview(content)[_HEAD.size + _COUNT.size :]
    if len(body) != count * ENTRY.size:
        raise InvalidSnapshot(f"{count} entries announced, {len(body)} bytes found")
    return [_decode_entry(fields) for fields in ENTRY.iter_unpack(body)]


def _decode_entry(fields: tuple[int, ...]) -> ProducerEntry:
    producer_id, epoch, last_sequence, last_offset, offset_delta, timestamp, coordinator_epoch, txn_first = fields
    batches: tuple[KeptBatch, ...] = ()
    if last_offset >= 0:
        if last_sequence == NO_SEQUENCE:
            first_sequence = NO_SEQUENCE
        else:
            first_sequence = (last_sequence - offset_delta) % (1 << 31)
        batches = ((first_sequence, last_sequence, last_offset, offset_delta, timestamp),)
    return ProducerEntry(producer_id, epoch, coordinator_epoch, timestamp, txn_first, batches)


def snapshot_path(directory: Path, offset: int) -> Path:
    return directory / file_name(offset, SNAPSHOT_SUFFIX)


def write_snapshot(directory: Path, offset: int, entries: Iterable[ProducerEntry], durable: bool) -> None:
    """A snapshot of everything below `offset`; one that exists is right already."""
    path = snapshot_path(directory, offset)
    if path.exists():
        return
    temporary = path.with_name(path.name + ".tmp")
    write_file(temporary, encode_snapshot(entries), durable)
    disk.replace(temporary, path)
    if durable:
        fsync_directory(directory)


class SnapshotJob:
    """One snapshot of very many producers, begun by the loop, written in any thread.

    Until it is done the log goes on with copies of the entries that it changes. A start that does not find the file
    reads from the snapshot before: nothing waits for this one.
    """

    def __init__(self, directory: Path, offset: int, state: ProducerState) -> None:
        self._path = snapshot_path(directory, offset)
        self._state = state
        self._lock = threading.Lock()
        self.done = False
        self.refused = False  # by a full disk
        self._entries = state.frozen = state.entries.copy()

    def run(self) -> None:
        """OSError as the disk gives it, except that the folder is gone or full: then there is no snapshot."""
        temporary = self._path.with_name(self._path.name + ".tmp")
        try:
            write_file(temporary, encode_snapshot(self._entries.values(), _breathe), durable=False)
            with self._lock:
                if self.done:
                    disk.discard(temporary)
                else:
                    disk.replace(temporary, self._path)
        except FileNotFoundError:
            logger.debug("path=%s the log is gone", self._path)
        except OSError as error:
            if error.errno not in NO_SPACE_ERRNOS:
                raise
            self.refused = True
            logger.warning("path=%s not written, the next start reads more: %s", self._path, error)
        finally:
            self.cancel()

    def cancel(self) -> None:
        """From now on no file appears: what it would tell is no longer so."""
        with self._lock:
            if not self.done:  # else the entries may be frozen for another job already
                self.done = True
                self._state.frozen = None


def _breathe() -> None:
    time.sleep(BREATH_SECONDS)


def snapshot_offsets(directory: Path, names: Iterable[str] | None = None) -> list[int]:
    """Offsets of all snapshots, rising; `names` if the folder was just listed."""
    offsets = []
    for name in disk.listdir(directory) if names is None else names:
        if name.endswith(SNAPSHOT_SUFFIX):
            offset = offset_of(name)
            if offset is not None:
                offsets.append(offset)
    return sorted(offsets)


def load_newest(
    directory: Path, log_start_offset: int, upper_offset: int, snapshots: Sequence[int]
) -> tuple[int, list[ProducerEntry]] | None:
    """(offset, entries) of the newest sound snapshot at or below `upper_offset`; broken ones are deleted."""
    for offset in reversed(snapshots):
        if offset > upper_offset or offset < log_start_offset:
            continue
        path = f"{directory}/{file_name(offset, SNAPSHOT_SUFFIX)}"
        content = read_small(path)
        if content is None:
            continue
        try:
            return offset, decode_snapshot(content)
        except InvalidSnapshot:
            disk.discard(Path(path))
    return None
