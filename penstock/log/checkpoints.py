"""Kafka's small text files: offset checkpoints of a folder, leader epochs of a replica, and its topic id."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.log.files import PARTITION_METADATA, read_small, write_durably

if TYPE_CHECKING:
    from penstock.log.log import Log

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"

_VERSION: Final = "0"

PartitionOffsets = dict[tuple[str, int], int]


class InvalidCheckpoint(Exception):
    """The file is not what its format says."""


def _decoded(path: Path | str, content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise InvalidCheckpoint(f"{path}: no text") from error


def read_lines(path: Path | str) -> list[list[str]]:
    """Split entries; none for a missing or empty file."""
    lines = _decoded(path, read_small(str(path)) or b"").splitlines()
    if not lines:
        return []
    try:
        if lines[0] != _VERSION:
            raise InvalidCheckpoint(f"{path}: unknown version {lines[0]!r}")
        count = int(lines[1])
    except (IndexError, ValueError) as error:
        raise InvalidCheckpoint(f"{path}: malformed head") from error
    entries = [line.split() for line in lines[2:]]
    if len(entries) != count:
        raise InvalidCheckpoint(f"{path}: {count} entries announced, {len(entries)} found")
    return entries


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    entries = list(lines)
    write_durably(path, ("\n".join([_VERSION, str(len(entries)), *entries]) + "\n").encode())


def read_offsets(path: Path) -> PartitionOffsets:
    """{(topic, partition): offset}."""
    try:
        return {(topic, int(partition)): int(offset) for topic, partition, offset in read_lines(path)}
    except ValueError as error:
        raise InvalidCheckpoint(f"{path}: malformed line") from error


def write_offsets(path: Path, offsets: Mapping[tuple[str, int], int]) -> None:
    """Durable; sorted, so that equal states give equal files."""
    _write_lines(path, (f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())))


def read_epochs(path: Path | str) -> list[tuple[int, int]]:
    """[(epoch, start offset)]."""
    try:
        return [(int(epoch), int(start)) for epoch, start in read_lines(path)]
    except ValueError as error:
        raise InvalidCheckpoint(f"{path}: malformed line") from error


def write_epochs(path: Path, epochs: Iterable[tuple[int, int]]) -> None:
    _write_lines(path, (f"{epoch} {start}" for epoch, start in epochs))


def encode_uuid(value: uuid.UUID) -> str:
    """Kafka's text form: base64url without padding."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def decode_uuid(text: str) -> uuid.UUID:
    try:
        return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))
    except ValueError as error:
        raise InvalidCheckpoint(f"{text!r} is no topic id") from error


def read_topic_id(directory: Path) -> uuid.UUID | None:
    """The topic id of a replica's folder; None if it was never written."""
    path = f"{directory}/{PARTITION_METADATA}"
    content = read_small(path)
    if content is None:
        return None
    text = _decoded(path, content)
    fields = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    if fields.get("version") != "0" or "topic_id" not in fields:
        raise InvalidCheckpoint(f"{path}: malformed")
    topic_id = decode_uuid(fields["topic_id"])
    if topic_id.int == 0:
        raise InvalidCheckpoint(f"{path}: zero topic id")
    return topic_id


def write_topic_id(directory: Path, topic_id: uuid.UUID) -> None:
    write_durably(directory / PARTITION_METADATA, f"version: 0\ntopic_id: {encode_uuid(topic_id)}".encode())


def offsets_of(logs: Iterable[Log], offset: Callable[[Log], int]) -> PartitionOffsets:
    return {(log.topic, log.partition): offset(log) for log in logs}


def log_starts_of(logs: Iterable[Log]) -> PartitionOffsets:
    """Only logs whose start the names of their files do not tell."""
    return {
        (log.topic, log.partition): log.log_start_offset
        for log in logs
        if log.log_start_offset > (log.segments[0].base_offset if log.segments[0].exists else 0)
    }
