"""The compaction process on a disk that refuses: `python -m penstock.testing.disk.cleaning PLAN SPEC RESULT` is one.

The broker's side is the real one, with that command instead of its own; the process meets the planned error at the
planned call. Afterwards every key has its newest value, in the broker that went on and after a restart, nothing of the
failed run is left, and the next run compacts.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from penstock.base.clock import ManualClock
from penstock.base.settings import LogConfig
from penstock.log import cleaner_process, disk
from penstock.log.files import CLEANED_SUFFIX, SWAP_SUFFIX
from penstock.log.log import Log
from penstock.log.log_manager import LogManager, ManagerSettings
from penstock.protocol.batch import build_batch, iterate_batches, read_records
from penstock.protocol.records import new_record
from penstock.testing.disk import faults
from penstock.testing.disk.workload import Violation

_CONFIG: Final = LogConfig(
    segment_bytes=900,
    cleanup_compact=True,
    cleanup_delete=False,
    min_cleanable_dirty_ratio=0.01,
    file_delete_delay_ms=0,
)
_KEYS: Final = 5
_RECORDS: Final = 40
_PATIENCE_SECONDS: Final = 60.0


class CleaningPlan(NamedTuple):
    fault: faults.Plan

    def __str__(self) -> str:
        return f"cleaning:{self.fault}"

    @classmethod
    def parse(cls, text: str) -> CleaningPlan:
        return cls(faults.Plan.parse(text.removeprefix("cleaning:")))


def plans(every_call: bool) -> Iterator[CleaningPlan]:
    for plan in faults.plans_of(_count_calls(), every_call):
        yield CleaningPlan(plan)


def _count_calls() -> Counter[str]:
    folder = Path(tempfile.mkdtemp(prefix="cleaning-search-"))
    try:
        counts = folder / "counts.json"
        _live(folder / "logs", f"count={counts}")
        return Counter(json.loads(counts.read_text()))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def try_plan(plan: CleaningPlan) -> None:
    """`Violation` or any other exception is a finding."""
    folder = Path(tempfile.mkdtemp(prefix="cleaning-search-"))
    try:
        _live(folder / "logs", str(plan.fault))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _live(folder: Path, plan: str) -> None:
    clock = ManualClock()
    manager = _start(folder, clock)
    try:
        log = manager.get_or_create("t", 0, None, _CONFIG)
        for number in range(_RECORDS):
            record = new_record(b"k%d" % (number % _KEYS), b"value %d" % number + bytes(40), clock.now_ms())
            log.append_as_leader(build_batch([record]), 0, clock.now_ms())
            log.write_staged()
        log.set_high_watermark(log.log_end_offset)
        manager.cleaner.command = (sys.executable, "-m", "penstock.testing.disk.cleaning", plan)
        _run_once(manager)
        _check(log)
        manager.cleaner.command = type(manager.cleaner).command
        if not plan.startswith("count="):
            clock.advance(3_600_000)
            _run_once(manager)
            _check(log)
        if log.size_bytes() > _RECORDS * 60:
            raise Violation(f"nothing was compacted: {log.size_bytes()} bytes")
        leftovers = [name for name in os.listdir(log.directory) if name.endswith((CLEANED_SUFFIX, SWAP_SUFFIX, ".tmp"))]  # noqa: PTH208
        if leftovers:
            raise Violation(f"left over: {leftovers}")
        manager.stop(clean=False)
        manager = _start(folder, clock)
        again = manager.get("t", 0)
        if again is None:
            raise Violation("the log is gone after a restart")
        again.set_high_watermark(again.log_end_offset)
        _check(again)
    finally:
        manager.stop(clean=False)


def _start(folder: Path, clock: ManualClock) -> LogManager:
    settings = ManagerSettings(recovery_threads=1)
    manager = LogManager([folder], lambda topic: _CONFIG, clock, node_id=1, cluster_id="c", settings=settings)
    manager.start()
    return manager


def _run_once(manager: LogManager) -> None:
    """From the choice of a log to the swap, or to the word that it did not work."""
    manager.cleaner.tick()
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while manager.cleaner.is_running:
        if time.monotonic() > deadline:
            raise Violation("the compaction does not end")
        time.sleep(0.002)
        manager.cleaner.tick()


def _check(log: Log) -> None:
    found: dict[bytes, bytes] = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read_bytes(offset, 1 << 20)
        if not data:
            break
        for header in iterate_batches(data):
            offset = header.next_offset
            found.update((record.key or b"", record.value or b"") for record in read_records(data, header))
    for key in range(_KEYS):
        newest = b"value %d" % (_RECORDS - _KEYS + key) + bytes(40)
        if found.get(b"k%d" % key) != newest:
            raise Violation(f"the newest value of key {key} is gone: {found.get(b'k%d' % key)!r}")


def main(arguments: list[str]) -> int:
    plan, spec, result = arguments
    counts = plan.removeprefix("count=") if plan.startswith("count=") else None
    faulty = faults.FaultyDisk(None if counts else faults.Plan.parse(plan))
    with disk.handed_in(faulty.calls):
        code = cleaner_process.main([spec, result])
    if counts:
        Path(counts).write_text(json.dumps(faulty.counted))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
