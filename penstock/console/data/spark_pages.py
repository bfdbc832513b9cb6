"""Where Spark's own pages of a pipeline are, and who may look at them: on this machine, and really of that driver.

Anybody who can write a driver's events could name another port. So before anything is taken from there, whoever listens
must answer as the Spark application that the driver said it is.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.console.data import pipelines
from penstock.console.data.viewer import AccessDenied, Viewer
from penstock.operate.errors import ExitCode, UserError
from penstock.operate.pipelines import SILENT_MS


@dataclass(frozen=True, slots=True)
class Pages:
    port: int
    app: str


def told(viewer: Viewer, name: str) -> Pages | None:
    """What the pipeline's driver said with its last state; None: there are none, or not on this machine."""
    known: Mapping[str, Any] = viewer.snapshot.memory.states.get(name) or {}
    said = known.get("spark_ui")
    silent = time.time() * 1000 - known.get("seen_at_ms", 0) > SILENT_MS
    if not isinstance(said, Mapping) or silent or said.get("host") != socket.gethostname():
        return None
    port, app = said.get("port"), said.get("app")
    if not isinstance(port, int) or not 1024 <= port <= 65535 or not isinstance(app, str) or not app:
        return None
    return Pages(port, app)


def pages(viewer: Viewer, name: str) -> Pages:
    """For editors who see everything: a driver's pages tell of all that it runs, and mask nothing."""
    viewer.require("editor")
    if not viewer.sees_everything or viewer.policy.masks_something(viewer.user.role):
        raise AccessDenied("Spark's pages hide nothing: they are for who sees every topic and every field")
    pipelines.flow(viewer, name)  # it is there
    found = told(viewer, name)
    if found is None:
        hint = "they are there while it runs, if its runner is on this console's machine and Spark is local"
        raise UserError(f"there are no Spark pages of {name}", hint, ExitCode.NOT_FOUND)
    return found
