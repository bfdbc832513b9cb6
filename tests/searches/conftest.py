"""What the searches share."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "broker")]  # raw_client is there


@pytest.fixture
def on_a_quick_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Temporary folders in memory, where there is such a place: thousands of lives are lived here. And silence: what
    the disk refuses is told by each of them."""
    memory = Path("/dev/shm")
    if os.access(memory, os.W_OK):
        monkeypatch.setattr(tempfile, "tempdir", str(memory))
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
