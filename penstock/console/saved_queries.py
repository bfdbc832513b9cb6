"""Saved queries of a cluster: a small file in the console's state folder, shared by all who use it."""

from __future__ import annotations

import json
import threading
from pathlib import Path

from penstock.operate.errors import ExitCode, UserError, not_found

MOST_SAVED = 200


class SavedQueries:
    """By name: the text, and who saved it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()

    def all(self) -> dict[str, dict[str, str]]:
        try:
            found: dict[str, dict[str, str]] = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        return dict(sorted(found.items()))

    def _write(self, content: dict[str, dict[str, str]]) -> None:
        fresh = self._path.with_suffix(".new")
        fresh.write_text(json.dumps(content, indent=1), encoding="utf-8")
        fresh.replace(self._path)

    def save(self, name: str, text: str, user: str) -> None:
        with self._lock:
            content = self.all()
            if name not in content and len(content) >= MOST_SAVED:
                raise UserError(f"{MOST_SAVED} queries are saved already", "delete one first", ExitCode.REFUSED)
            self._write({**content, name: {"text": text, "by": user}})

    def delete(self, name: str) -> None:
        with self._lock:
            content = self.all()
            if name not in content:
                raise not_found("saved query", name, content)
            del content[name]
            self._write(content)
