"""Folders that nobody claims: set aside under a name that nobody loads, counted, and deleted when they are old."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from penstock.base.clock import SystemClock
from penstock.base.settings import LogConfig
from penstock.log import lost_and_found
from penstock.log.log_manager import LogManager, ManagerSettings

DAY_MS = 86_400_000


def started(folder: Path, retention_ms: int) -> LogManager:
    settings = ManagerSettings(stray_retention_ms=retention_ms)
    manager = LogManager([folder], lambda topic: LogConfig(), SystemClock(), node_id=1, settings=settings)
    manager.start()
    return manager


def strays(folder: Path) -> list[Path]:
    return sorted(folder.glob("*-stray"))


def test_a_folder_set_aside_is_kept_for_its_time_and_then_goes(tmp_path: Path) -> None:
    manager = started(tmp_path, DAY_MS)
    manager.get_or_create("t", 0, uuid.uuid4(), LogConfig())
    manager.set_aside("t", 0)
    (stray,) = strays(tmp_path)
    assert lost_and_found.stray_count(manager) == 1 and manager.get("t", 0) is None
    manager.stop()
    again = started(tmp_path, DAY_MS)
    assert again.get("t", 0) is None, "nobody loads it"
    lost_and_found.delete_old_strays(again)
    again.tick()
    assert strays(tmp_path) == [stray]
    two_days_ago = stray.stat().st_mtime - 2 * DAY_MS / 1000
    os.utime(stray, (two_days_ago, two_days_ago))
    lost_and_found.delete_old_strays(again)
    again.tick()
    again.stop()
    assert strays(tmp_path) == []


def test_a_folder_set_aside_for_ever_has_no_timer(tmp_path: Path) -> None:
    manager = started(tmp_path, -1)
    assert "strays" not in {task.name for task in manager.background_tasks()}
    manager.stop()


def test_a_long_name_can_be_set_aside(tmp_path: Path) -> None:
    manager = started(tmp_path, DAY_MS)
    name = "t" * 249
    manager.get_or_create(name, 0, uuid.uuid4(), LogConfig())
    manager.set_aside(name, 0)
    manager.stop()
    assert len(strays(tmp_path)) == 1
