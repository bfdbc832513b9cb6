"""The committed pages are what the tables render: whoever changes a table runs `make docs`."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _script(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _pages() -> dict[str, str]:
    return {name: render() for name, render in _script("render_docs").PAGES.items()}


@pytest.mark.parametrize("name", ["configuration.md", "metrics.md", "apis.md", "map.md", "differences.md"])
def test_a_committed_page_equals_its_rendering(name: str) -> None:
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == _pages()[name], "run `make docs`"


def test_the_page_of_settings_names_every_setting() -> None:
    from penstock.base.settings import BROKER_SETTINGS, TOPIC_SETTINGS

    text = _pages()["configuration.md"]
    missing = [name for name in (*BROKER_SETTINGS, *TOPIC_SETTINGS) if f"`{name}`" not in text]
    assert missing == []


def test_a_setting_that_claims_an_effect_is_read_somewhere() -> None:
    unread, _ = _script("settings_effect").mismatches()
    assert unread == [], "read it where it should act, or run `python scripts/settings_effect.py --fix`"
