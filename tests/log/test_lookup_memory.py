"""Looking for a time inside a batch of very many records keeps none of them."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

from penstock.base.clock import ManualClock
from penstock.testing.hostile_batches import dense_payload, sealed
from penstock.testing.log_tools import new_log

NOW = 1_700_000_000_000
COUNT = 200_000


def test_a_time_in_a_dense_batch_is_found_without_its_records(tmp_path: Path) -> None:
    log = new_log(tmp_path / "dense-0", ManualClock(NOW))
    assert not log.append_as_leader(sealed(dense_payload(COUNT), COUNT, timestamp=NOW), 0, NOW).error
    log.write_staged()
    tracemalloc.start()
    try:
        found = log.offset_for_timestamp(NOW)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found is not None
    assert (found.timestamp, found.offset) == (NOW, 0)
    assert peak < 20 * 1024 * 1024  # the payload and a copy; its records were 35 MB
