"""Where a group's offsets shall go: the plan behind `penstock group reset`."""

from __future__ import annotations

import csv
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.operate import admin
from penstock.operate.errors import ExitCode, UserError, no_partition, usage_error
from penstock.operate.positions import parse_time

if TYPE_CHECKING:
    from penstock.operate.session import Session

Key = tuple[str, int]
Plan = dict[Key, tuple[int | None, int]]


def plan_reset(
    session: Session, group: str, topics: list[str] | None, to: str | None, shift: int | None, file: Path | None
) -> Plan:
    """{(topic, partition): (offset now, offset to be)}, kept within what the log holds."""
    current = {key: offset for key, (offset, _) in admin.committed_offsets(session, group).items()}
    if file is not None:
        wanted = _from_file(file)
        for name, index in wanted:
            _check_partition(name, index, admin.topic(session, name).partitions)
    else:
        keys = chosen_partitions(session, topics) if topics else sorted(current)
        if not keys:
            raise UserError(f"{group} has no offsets yet", "name topics with --topic", ExitCode.NOT_FOUND)
        wanted = _targets(session, keys, current, to, shift)
    starts = admin.list_offsets(session, dict.fromkeys(wanted, admin.EARLIEST))
    ends = admin.list_offsets(session, dict.fromkeys(wanted, admin.LATEST))
    return {
        key: (current.get(key), min(max(target, starts[key][0]), ends[key][0]))
        for key, target in wanted.items()
        if key in ends
    }


def _check_partition(name: str, index: int, known: Collection[int]) -> None:
    if index not in known:
        raise no_partition(name, index, known)


def chosen_partitions(session: Session, topics: list[str]) -> list[Key]:
    keys = []
    for word in topics:
        name, colon, listed = word.partition(":")
        known = admin.topic(session, name).partitions
        try:
            indexes = [int(p) for p in listed.split(",")] if colon else list(known)
        except ValueError:
            raise usage_error(f"--topic {word!r} is not TOPIC[:PARTITION,…]", "for example orders:0,3") from None
        for index in indexes:
            _check_partition(name, index, known)
        keys += [(name, index) for index in indexes]
    return keys


def _targets(
    session: Session, keys: list[Key], current: dict[Key, int], to: str | None, shift: int | None
) -> dict[Key, int]:
    if shift is not None:
        absent = [key for key in keys if key not in current]
        if absent:
            raise UserError(f"{absent[0][0]}-{absent[0][1]} has no offset to shift", "use --to earliest or --to latest")
        return {key: current[key] + shift for key in keys}
    assert to is not None
    if to in ("earliest", "latest"):
        position = admin.EARLIEST if to == "earliest" else admin.LATEST
        return {key: offset for key, (offset, _) in admin.list_offsets(session, dict.fromkeys(keys, position)).items()}
    if to == "current":
        ends = admin.list_offsets(session, dict.fromkeys(keys, admin.LATEST))
        return {key: current.get(key, ends[key][0]) for key in keys}
    if to.isdigit() and len(to) < 12:  # longer numbers are times in milliseconds
        return dict.fromkeys(keys, int(to))
    try:
        moment = parse_time(to)
    except UserError:
        raise usage_error(
            f"--to {to!r} is no place", "write earliest, latest, current, an offset, or a time: 2h, 2026-11-01T12:00"
        ) from None
    ends = admin.list_offsets(session, dict.fromkeys(keys, admin.LATEST))
    found = admin.list_offsets(session, dict.fromkeys(keys, moment))
    return {key: found[key][0] if found[key][0] >= 0 else ends[key][0] for key in keys if key in ends}


def _from_file(file: Path) -> dict[Key, int]:
    if not file.is_file():
        raise UserError(f"there is no file {file}", code=ExitCode.NOT_FOUND)
    wanted = {}
    with file.open(newline="") as stream:
        for number, row in enumerate(csv.reader(stream), 1):
            if not row:
                continue
            try:
                topic, partition, offset = row
                wanted[topic.strip(), int(partition)] = int(offset)
            except ValueError:
                raise usage_error(
                    f"{file}, line {number}: not topic,partition,offset", "for example orders,0,1500"
                ) from None
    return wanted
