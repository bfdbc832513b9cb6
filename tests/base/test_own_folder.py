"""Programs are kept only in temporary folders that nobody else can have prepared."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from penstock.base.own_folder import own_folder

NAME = f"penstock-java-{os.getuid()}"


def test_the_same_folder_serves_every_time_and_is_ours_alone(tmp_path: Path) -> None:
    first = own_folder("java", tmp_path)
    own_folder.cache_clear()
    assert own_folder("java", tmp_path) == first == tmp_path / NAME
    assert stat.S_IMODE(first.stat().st_mode) == 0o700


@pytest.mark.parametrize("trap", ["writable by others", "a link", "a file", "somebody else's"])
def test_a_prepared_folder_is_left_alone(tmp_path: Path, trap: str) -> None:
    own_folder.cache_clear()
    prepared = tmp_path / NAME
    if trap == "a link":
        (tmp_path / "elsewhere").mkdir()
        prepared.symlink_to(tmp_path / "elsewhere")
    elif trap == "a file":
        prepared.write_text("")
    else:
        prepared.mkdir()
        prepared.chmod(0o777 if trap == "writable by others" else 0o700)
        if trap == "somebody else's":
            if os.geteuid() != 0:
                pytest.skip("only root can give a folder away")
            os.chown(prepared, 12345, 12345)
    chosen = own_folder("java", tmp_path)
    assert chosen != prepared and chosen.parent == tmp_path
    assert chosen.stat().st_uid == os.getuid()
    assert stat.S_IMODE(chosen.stat().st_mode) == 0o700


def test_a_folder_that_others_could_read_is_closed(tmp_path: Path) -> None:
    own_folder.cache_clear()
    prepared = tmp_path / NAME
    prepared.mkdir()
    prepared.chmod(0o755)
    assert own_folder("java", tmp_path) == prepared
    assert stat.S_IMODE(prepared.stat().st_mode) == 0o700
