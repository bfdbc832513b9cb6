"""The committed pages are what the tables render: whoever changes a table runs `make docs`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.pipelines.spec import Frozen

ROOT = Path(__file__).resolve().parents[2]


def _script(name: str) -> Any:
    """Scripts import their neighbours, as they can when they are run."""
    folder = str(ROOT / "scripts")
    if folder not in sys.path:
        sys.path.append(folder)
    return importlib.import_module(name)


def _pages() -> dict[str, str]:
    return {name: render() for name, render in _script("render_docs").PAGES.items()}


@pytest.mark.parametrize(
    "name", ["configuration.md", "metrics.md", "apis.md", "map.md", "differences.md", "pipeline-spec.md"]
)
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


def test_every_option_of_a_pipeline_says_what_it_means() -> None:
    reference = _script("pipeline_reference")
    silent = {model.__qualname__: reference.without_meaning(model) for model in reference.models()}
    assert {name: fields for name, fields in silent.items() if fields} == {}, "end the field's line with a comment"


def test_an_option_without_a_comment_is_noticed() -> None:
    class Options(Frozen):
        folder: str  # where files go
        # A comment above a field is about the code, not about the option.
        limit: int = 1

    assert _script("pipeline_reference").without_meaning(Options) == ["limit"]


def test_the_page_of_pipelines_names_every_part() -> None:
    from penstock.pipelines import connectors, operators

    text = _pages()["pipeline-spec.md"]
    parts = [("Source", connectors._SOURCES), ("Sink", connectors._SINKS), ("Operator", operators._OPERATORS)]
    missing = [f"{kind} {name}" for kind, names in parts for name in names if f"### {kind} `{name}`\n" not in text]
    assert missing == []
