"""`kill -9` while writing, again and again: what was acknowledged is there, in order, and nothing is corrupt."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

from penstock.base.clock import SystemClock
from penstock.base.settings import LogConfig
from penstock.log.log_manager import LogManager
from penstock.log.verify import verify
from penstock.testing.log_tools import read_all

ROUNDS = 12

# A broker reduced to its log: append, write, acknowledge on stdout; segments roll and are flushed all the time.
WRITER = """
import sys
from pathlib import Path
from penstock.base.clock import SystemClock
from penstock.base.settings import LogConfig
from penstock.log.log_manager import LogManager
from penstock.testing.log_tools import append

config = LogConfig(segment_bytes=20_000, index_interval_bytes=500, flush_ms=1)
manager = LogManager([Path(sys.argv[1])], lambda topic: config, SystemClock(), node_id=1)
manager.start()
log = manager.get_or_create("killed", 0, None, config)
number = log.log_end_offset
tasks = [task for task in manager.background_tasks() if task.name != "log-cleaner"]
while True:
    for _ in range(5):
        append(log, (b"k", b"%d" % number), producer_id=1, producer_epoch=0, base_sequence=number)
        number += 1
    assert manager.write_all_staged() == []
    log.set_high_watermark(log.log_end_offset)
    print(log.log_end_offset, flush=True)
    if number % 500 == 0:
        for task in tasks:
            task.run()
"""


def test_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    dice = random.Random(4)
    acknowledged = 0
    for round_number in range(ROUNDS):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        try:
            first = writer.stdout.readline()
            assert first, writer.stderr.read() if writer.stderr else ""
            acknowledged = int(first)
            stop_at = time.monotonic() + dice.uniform(0.0, 0.3)
            while time.monotonic() < stop_at:
                acknowledged = int(writer.stdout.readline())
        finally:
            writer.kill()
            rest = writer.communicate()[0]
        lines = rest.splitlines(keepends=True)
        acknowledged = max([acknowledged, *(int(line) for line in lines if line.endswith("\n"))])

        config = LogConfig(segment_bytes=20_000, index_interval_bytes=500)
        manager = LogManager([tmp_path], lambda topic, config=config: config, SystemClock(), node_id=1)
        manager.start()
        try:
            log = manager.get("killed", 0)
            assert log is not None
            assert log.log_end_offset >= acknowledged, f"round {round_number}"
            values = [record.value for record in read_all(log)]
            assert values == [b"%d" % number for number in range(log.log_end_offset)]
            assert log.producers()[0].last_sequence == log.log_end_offset - 1
            log.active.write_indexes()
            assert list(verify(log.directory, records=True)) == []
        finally:
            manager.stop(clean=round_number % 3 == 0)
    assert acknowledged > 0
