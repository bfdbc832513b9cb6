"""Files of a log folder: their names, an open file that closes itself, and durable writes."""

from __future__ import annotations

import os
from pathlib import Path


class LogFile:
    """An open file. It closes when the last segment or region that holds it is gone: no reader loses its bytes."""

    __slots__ = ("__weakref__", "fd", "path")

    def __init__(self, path: Path, flags: int = os.O_RDONLY) -> None:
        self.path = path
        self.fd = os.open(path, flags | os.O_CLOEXEC, 0o644)

    def __del__(self) -> None:
        fd = getattr(self, "fd", -1)
        if fd >= 0:
            self.fd = -1
            os.close(fd)
