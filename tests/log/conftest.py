"""What the stories about the log share: a clock that stands still, logs in temporary folders, batches to write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.base.clock import ManualClock
from penstock.log import disk
from penstock.log.log import Log
from penstock.testing.log_tools import new_log


@pytest.fixture(autouse=True, scope="session")
def no_waiting_for_the_disk() -> Iterator[None]:
    """No test can see what fsync does, but thousands of them take minutes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk, "fsync", lambda fd: None)
        yield


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def make_log(tmp_path: Path, clock: ManualClock) -> Callable[..., Log]:
    """`make_log(segment_bytes=…)` begins an empty log; `name=` when a story needs two."""

    def make(name: str = "story-0", **config: object) -> Log:
        return new_log(tmp_path / name, clock, **config)

    return make
