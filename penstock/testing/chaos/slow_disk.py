"""`python -m penstock.testing.chaos.slow_disk FILE --config …`: a broker whose disk is as slow as the file says.

While FILE holds a number, each write and each sync takes so many milliseconds longer.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.broker.__main__ import main
from penstock.log import disk

LOOK_SECONDS = 0.2


class Slowness:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._looked_at = 0.0
        self._seconds = 0.0

    def wait(self) -> None:
        now = time.monotonic()
        if now - self._looked_at > LOOK_SECONDS:
            self._looked_at = now
            try:
                self._seconds = int(self._file.read_text() or 0) / 1000
            except (FileNotFoundError, ValueError):
                self._seconds = 0.0
        if self._seconds:
            time.sleep(self._seconds)

    def slow(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def slowed(*arguments: Any) -> Any:
            self.wait()
            return call(*arguments)

        return slowed


def run(arguments: list[str]) -> int:
    slowness = Slowness(Path(arguments[0]))
    calls: dict[str, Callable[..., Any]] = {"pwrite": os.pwrite, "pwritev": os.pwritev, "fsync": os.fsync}
    with disk.handed_in({name: slowness.slow(call) for name, call in calls.items()}):
        return main(arguments[1:])


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
