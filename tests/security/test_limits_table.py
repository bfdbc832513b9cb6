"""The table of limits tells the truth: every test that it names is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def test_every_limit_names_a_test_that_is_there() -> None:
    text = (ROOT / "docs" / "limits.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| resource")]
    assert len(rows) > 20
    missing = [line for line in rows if not ROW.search(line)]
    for path, test in ROW.findall(text):
        file = ROOT / path
        if not file.is_file() or f"def {test}(" not in file.read_text(encoding="utf-8"):
            missing.append(f"{path}::{test}")
    assert not missing
