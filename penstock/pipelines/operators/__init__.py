"""Operators by name: what stream people expect and SQL lacks."""

from __future__ import annotations

import importlib
from typing import Any, Final

from penstock.pipelines.spec import Path, SpecError, unknown_key

_OPERATORS: Final = {
    "join-latest": ("join_latest", "JoinLatest"),
    "changelog-to-table": ("changelog", "ChangelogToTable"),
    "table-to-changelog": ("changelog", "TableToChangelog"),
    "suppress": ("suppress", "Suppress"),
    "branch": ("branching", "Branch"),
    "merge": ("branching", "Merge"),
    "deduplicate": ("deduplicate", "Deduplicate"),
    "sessions": ("sessions", "Sessions"),
    "remember": ("remember", "Remember"),
}


def find(name: str, path: Path = ()) -> type[Any]:
    if name not in _OPERATORS:
        problem = unknown_key(name, "", list(_OPERATORS)).replace("unknown key", "there is no operator")
        raise SpecError(problem, path)
    module, class_name = _OPERATORS[name]
    found: type[Any] = getattr(importlib.import_module(f"{__name__}.{module}"), class_name)
    return found
