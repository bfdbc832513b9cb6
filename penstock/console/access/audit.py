"""The audit log: one JSON line for every change and login, in the state folder."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

LARGEST = 16 << 20


class Audit:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()

    def write(self, user: str, action: str, target: str, *, cluster: str = "", ok: bool = True, **more: Any) -> None:
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        entry = {"at": at, "user": user, "cluster": cluster, "action": action, "target": target, "ok": ok, **more}
        line = json.dumps(entry, ensure_ascii=True, default=str) + "\n"
        with self._lock:
            if self._path.exists() and self._path.stat().st_size > LARGEST:
                self._path.replace(self._path.with_suffix(".1.jsonl"))
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(descriptor, "a") as file:
                file.write(line)

    def recent(self, count: int = 50, cluster: str | None = None) -> list[dict[str, Any]]:
        """The newest entries, newest first."""
        try:
            with self._path.open("rb") as file:
                file.seek(0, os.SEEK_END)
                size = file.tell()
                file.seek(max(0, size - 256 * 1024))
                lines = file.read().splitlines()
        except FileNotFoundError:
            return []
        if size > 256 * 1024:
            lines = lines[1:]
        entries = [json.loads(line) for line in lines]
        chosen = [entry for entry in entries if cluster is None or entry["cluster"] in ("", cluster)]
        return chosen[: -count - 1 : -1]
