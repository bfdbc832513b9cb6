"""Files with rows or passwords in them are for their owner, whatever the umask says."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from raw_client import RawClient, batch, ensure_topic, produce_request

import penstock
from penstock.operate import profiles
from penstock.operate.errors import UserError
from penstock.pipelines.storage import LocalStorage


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def open_to_others(folder: Path) -> list[str]:
    return [str(item) for item in [folder, *folder.rglob("*")] if stat.S_IMODE(item.lstat().st_mode) & 0o077]


def test_an_embedded_brokers_files(tmp_path: Path) -> None:
    with penstock.Broker(tmp_path / "data") as broker:
        ensure_topic(broker.port, "t")
        with RawClient(broker.port) as client:
            client.call("produce", 9, produce_request("t", batch(b"x")))
    assert (tmp_path / "data").is_dir()
    assert open_to_others(tmp_path / "data") == []


def test_a_pipelines_state(tmp_path: Path) -> None:
    LocalStorage(str(tmp_path / "state" / "orders")).write_text("generations/1.json", "{}")
    assert stat.S_IMODE((tmp_path / "state" / "orders").stat().st_mode) == 0o700


def test_profiles_that_somebody_made_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "collection.toml"
    kept.write_text("")
    kept.chmod(0o644)
    (tmp_path / "profiles.toml").symlink_to(kept)
    monkeypatch.setattr(profiles, "path", lambda: tmp_path / "profiles.toml")
    profiles.save({"p": {"sasl.password": "secret"}})
    assert profiles.load("p") == {"sasl.password": "secret"}
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert (tmp_path / "profiles.toml").is_symlink()


def test_a_full_disk_costs_no_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiles, "path", lambda: tmp_path / "profiles.toml")
    profiles.save({"p": {"a": "1"}})
    with monkeypatch.context() as patch:

        def full(source: Path, target: Path) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        patch.setattr(Path, "replace", full)
        with pytest.raises(UserError):
            profiles.save({})
    assert profiles.load("p") == {"a": "1"}
    assert [item.name for item in tmp_path.iterdir()] == ["profiles.toml"]
