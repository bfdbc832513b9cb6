"""The logs of a local cluster's processes: what was said before the last start can still be read."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from penstock.cluster import local


def run(folder: Path, words: str) -> None:
    local._spawn(folder, [sys.executable, "-c", f"print({words!r})"])
    deadline = time.monotonic() + 30
    while local._running_pid(folder) is not None:
        assert time.monotonic() < deadline


def test_a_start_keeps_what_was_said_before(tmp_path: Path) -> None:
    run(tmp_path, "ready: the first life")
    assert local._says_ready(tmp_path)
    run(tmp_path, "the second life is in trouble")
    assert not local._says_ready(tmp_path), "an earlier life's word does not count"
    assert local._last_words(tmp_path) == "the second life is in trouble"
    assert "the first life" in local._log(tmp_path).read_text()


def test_a_large_log_is_put_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "LOG_BYTES", 10)
    run(tmp_path, "a long story of the first life")
    run(tmp_path, "second")
    assert "first life" in (tmp_path / "process.log.1").read_text()
    assert local._log(tmp_path).read_text() == "second\n"
