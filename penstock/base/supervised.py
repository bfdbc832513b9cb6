"""A part that must not outlive its supervisor: the pipe between them closes however that one ends, and says so.

A supervisor starts its parts with `ENVIRONMENT` and a pipe as their standard input. `end_with_supervisor` waits for the
end of that pipe in a thread of its own and then asks this process to stop, as a signal from outside would.
"""

from __future__ import annotations

import os
import signal
import threading

VARIABLE = "PENSTOCK_SUPERVISED"
ENVIRONMENT = {VARIABLE: "1"}


def end_with_supervisor() -> None:
    """Does nothing unless a supervisor started this process."""
    if os.environ.pop(VARIABLE, None) is None:  # popped: what we start is not its part but ours
        return
    threading.Thread(target=_wait, name="supervisor", daemon=True).start()


def _wait() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
