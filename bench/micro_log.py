"""How much Python one append and one read cost: `python bench/micro_log.py [appends per write]`.

Prints microseconds per call, medians of several rounds. Writes to a temporary folder and removes it.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from penstock.base.clock import SystemClock
from penstock.base.settings import LogConfig
from penstock.log import maintenance
from penstock.log.events import LogEvents
from penstock.log.log import Log
from penstock.protocol.batch import build_batch
from penstock.protocol.records import new_record

ROUNDS = 7
CALLS = 20_000


def measure(name: str, run: Callable[[int], None], calls: int = CALLS) -> None:
    run(calls // 10)
    times = []
    for _ in range(ROUNDS):
        started = time.perf_counter_ns()
        run(calls)
        times.append((time.perf_counter_ns() - started) / calls / 1000)
    print(f"{name:<52} {statistics.median(times):8.2f} µs  (best {min(times):.2f})")


def new_log(folder: Path, name: str, **config: int) -> Log:
    directory = folder / name
    directory.mkdir()
    log = Log(directory, name, 0, LogConfig(**config), LogEvents(SystemClock()))  # type: ignore[arg-type]
    maintenance.begin(log, 0)
    return log


def main() -> None:
    per_write = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    now_ms = SystemClock().now_ms()
    plain = memoryview(build_batch([new_record(None, b"v" * 100, now_ms)]))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)

        idempotent = new_log(folder, "idempotent")
        sequence = 0

        def append_idempotent(calls: int) -> None:
            nonlocal sequence
            for number in range(calls):
                batch = batches[sequence % len(batches)]
                result = idempotent.append_as_leader(batch, 0, now_ms)
                if result.error or result.duplicate:
                    raise AssertionError(result)
                sequence += 1
                if number % per_write == 0:
                    idempotent.write_staged()

        batches = [
            memoryview(
                build_batch(
                    [new_record(None, b"v" * 100, now_ms)], producer_id=1, producer_epoch=0, base_sequence=number
                )
            )
            for number in range((ROUNDS + 1) * CALLS)
        ]
        measure(f"append, idempotent, one write for {per_write}", append_idempotent)

        written = new_log(folder, "written")

        def append_and_write(calls: int) -> None:
            for number in range(calls):
                written.append_as_leader(plain, 0, now_ms)
                if number % per_write == 0:
                    written.write_staged()

        measure(f"append, one write for {per_write}", append_and_write)
        written.write_staged()
        written.set_high_watermark(written.log_end_offset)
        end = written.log_end_offset

        def read_tail(calls: int) -> None:
            for number in range(calls):
                written.read(end - 1 - number % 100, 1_048_576, end)

        measure("read at the tail", read_tail)

        def read_old(calls: int) -> None:
            for number in range(calls):
                written.read(number * 7 % (end // 2), 1_048_576, end)

        measure("read old data (index lookup, scan)", read_old, 2000)

        large = memoryview(build_batch([new_record(None, b"v" * 1000, now_ms) for _ in range(100)]))
        bulk = new_log(folder, "bulk")

        def append_large(calls: int) -> None:
            for _ in range(calls):
                bulk.append_as_leader(large, 0, now_ms)
                bulk.write_staged()

        measure("append and write, 100 KB", append_large, 1000)


if __name__ == "__main__":
    main()
