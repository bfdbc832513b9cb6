"""Producer snapshots (`.snapshot`): the producer state up to an offset, so that a start need not read the whole log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from struct import Struct
from typing import Final

from penstock.log import disk
from penstock.log.files import SNAPSHOT_SUFFIX, file_name, fsync_directory, offset_of, read_small, write_file
from penstock.log.producer_state import NO_OFFSET, NO_SEQUENCE, KeptBatch, ProducerEntry
from penstock.protocol.crc import crc32c

VERSION: Final = 1
_HEAD: Final = Struct(">hI")
_COUNT: Final = Struct(">i")
ENTRY: Final = Struct(">qhiqiqiq")


class InvalidSnapshot(Exception):
    """The file is cut, of another version, or its checksum differs: the next older one is tried."""


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """Only the newest batch of each producer is kept, as in Kafka."""
    packed: list[bytes] = []
    for entry in entries:
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
