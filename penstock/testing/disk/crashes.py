"""Losing power at every disk call of the workload, loading what may be left, and losing it again during that load."""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

from penstock.log import disk
from penstock.log.log import Log
from penstock.protocol.batch import CONTROL_ABORT, iterate_batches, read_marker, read_records
from penstock.testing.disk.power import PowerDisk, PowerLost
from penstock.testing.disk.workload import CONFIGS, Known, Life, Violation


class Crash(NamedTuple):
    """Before which changing call, and with which dice for what is left."""

    number: int
    seed: int

    def __str__(self) -> str:
        return f"crash:{self.number}:{self.seed}"

    @classmethod
    def parse(cls, text: str) -> Crash:
        _, number, seed = text.split(":")
        return cls(int(number), int(seed))


def count_changes() -> int:
    """How many calls of an undisturbed life change something."""
    folder = Path(tempfile.mkdtemp(prefix="power-search-"))
    power = PowerDisk()
    try:
        with disk.handed_in(power.calls):
            life = Life(folder / "logs")
            life.run()
            life.stop(clean=False)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return power.count


def try_crash(crash: Crash) -> None:
    """`Violation` or any other exception is a finding."""
    dice = random.Random(f"{crash.number} {crash.seed}")
    folder = Path(tempfile.mkdtemp(prefix="power-search-"))
    life = Life(folder / "0")
    try:
        power = PowerDisk(crash.number)
        _until_power_is_lost(power, life, life.run)
        power.leave(folder / "0", folder / "1", dice)
        again = PowerDisk(dice.randrange(60))
        life.folder = folder / "1"
        again.adopt(life.folder)
        _until_power_is_lost(again, life, life.start)
        again.leave(folder / "1", folder / "2", dice)
        life.folder = folder / "2"
        life.start()
        check(life)
        life.stop(clean=True)
    finally:
        if life.manager is not None:
            life.manager.stop(clean=False)
        shutil.rmtree(folder, ignore_errors=True)


def _until_power_is_lost(power: PowerDisk, life: Life, work: object) -> None:
    assert callable(work)
    try:
        with disk.handed_in(power.calls):
            work()
    except PowerLost:
        pass
    # The process is gone; in this one its logs are just forgotten, and their folder is not used again.
    if life.manager is not None:
        life.manager._release()
        life.manager = None


def check(life: Life) -> None:
    """The log is a first part of what was appended, with all that was synced; whatever is derived equals a replay."""
    assert life.manager is not None
    for topic, known in life.known.items():
        log = life.manager.get(topic, 0)
        if log is None:
            if known.synced_end > 0:
                raise Violation(f"{topic}: synced up to {known.synced_end}, and gone")
            continue
        _check_records(topic, log, known)
        _check_replay(topic, log)


def _check_records(topic: str, log: Log, known: Known) -> None:
    present: dict[int, bytes] = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read_bytes(offset, 1 << 20)
        if not data:
            break
        for header in iterate_batches(data):
            offset = header.next_offset
            if not header.is_control:
                present.update((record.offset, record.value or b"") for record in read_records(data, header))
    for at, value in present.items():
        if value not in known.appended.get(at, set()):
            raise Violation(f"{topic}: {value[:20]!r} at {at} was never appended there")
    if log.log_end_offset < known.synced_end:
        raise Violation(f"{topic}: synced up to {known.synced_end}, ends at {log.log_end_offset}")
    if CONFIGS[topic].cleanup_compact:
        return
    missing = [at for at in known.acked if max(log.log_start_offset, known.start) <= at < log.log_end_offset]
    for at in missing:
        if at not in present:
            raise Violation(f"{topic}: a hole at {at}")
    if log.log_start_offset > known.start:
        raise Violation(f"{topic}: begins at {log.log_start_offset} instead of {known.start}")


def _check_replay(topic: str, log: Log) -> None:
    """Epochs, open and aborted transactions, as the batches that are there tell them."""
    epochs: list[tuple[int, int]] = []
    opened: dict[int, int] = {}
    aborted: set[tuple[int, int]] = set()
    for segment in log.segments:
        if not segment.exists:
            continue
        for header in segment.headers():
            if not epochs or header.leader_epoch > epochs[-1][0]:
                epochs.append((header.leader_epoch, header.base_offset))
            if header.is_control:
                marker = read_marker(segment.read_at(header.position, header.size), header._replace(position=0))
                first = opened.pop(header.producer_id, None)
                if first is not None and marker is not None and marker.control_type == CONTROL_ABORT:
                    aborted.add((header.producer_id, first))
            elif header.is_transactional:
                opened.setdefault(header.producer_id, header.base_offset)
    told = {(one.producer_id, one.first_offset) for one in log.aborted_transactions(0, log.log_end_offset)}
    if told != aborted:
        raise Violation(f"{topic}: aborted are {sorted(aborted)}, the index says {sorted(told)}")
    if sorted(log.producers_state.ongoing) != sorted(opened.values()):
        raise Violation(f"{topic}: open are {opened}, the state says {log.producers_state.ongoing}")
    stored = [epoch for epoch, _ in log.epochs.entries() if epoch in dict(epochs)]
    if [epoch for epoch, _ in epochs] != stored and not CONFIGS[topic].cleanup_compact:
        raise Violation(f"{topic}: epochs {epochs}, the file says {log.epochs.entries()}")
