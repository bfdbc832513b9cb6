"""A producer that repeats its batches after a restart of its leader: all five in flight are known again."""

from __future__ import annotations

from pathlib import Path

from penstock.base.clock import ManualClock
from penstock.base.settings import LogConfig
from penstock.log.log_manager import LogManager
from penstock.protocol.batch import Record, build_batch


def batch(sequence: int, clock: ManualClock) -> bytes:
    record = Record(0, clock.now_ms(), None, b"value", ())
    return build_batch([record], producer_id=7, producer_epoch=0, base_sequence=sequence)


def test_batches_in_flight_are_known_after_a_clean_restart(tmp_path: Path) -> None:
    clock = ManualClock()
    manager = LogManager([tmp_path], lambda topic: LogConfig(), clock, node_id=1)
    manager.start()
    log = manager.get_or_create("t", 0, None, LogConfig())
    for sequence in range(9):
        assert not log.append_as_leader(batch(sequence, clock), 0, clock.now_ms()).error
    manager.stop()

    again = LogManager([tmp_path], lambda topic: LogConfig(), clock, node_id=1)
    again.start()
    log = again.get_or_create("t", 0, None, LogConfig())
    for sequence in range(4, 9):
        result = log.append_as_leader(batch(sequence, clock), 0, clock.now_ms())
        assert (result.error, result.duplicate, result.base_offset) == (0, True, sequence)
    assert not log.append_as_leader(batch(9, clock), 0, clock.now_ms()).error
    again.stop()
