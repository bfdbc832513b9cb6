"""What a runner says of itself among the events: which secrets it looks up, and what pipelines of editors may use.

Repeated while it runs, so that a console knows which runners could come to run what somebody applies.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from pydantic import ConfigDict, TypeAdapter, ValidationError

from penstock.pipelines.secrets import OF_RUNNERS, Allowed

NOBODY: Final = "-"  # the pipeline under which events of runners stand
REPEAT_SECONDS: Final = 10.0
SILENT_MS: Final = 60_000


@dataclass(frozen=True)
class Opened:
    """What pipelines may use that somebody without the right of an admin applies."""

    __pydantic_config__ = ConfigDict(extra="forbid")
    connectors: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    """Patterns of references: env:NAME, file:PATH."""


@dataclass(frozen=True)
class Registration:
    __pydantic_config__ = ConfigDict(extra="ignore")
    runner: str
    env_prefix: str = OF_RUNNERS.env_prefix
    secrets_dir: str | None = OF_RUNNERS.folder
    opened: Opened | None = None
    """None: it says nothing about editors."""
    ended: bool = False

    @property
    def allowed(self) -> Allowed:
        return Allowed(self.env_prefix, self.secrets_dir)

    def content(self) -> dict[str, Any]:
        return asdict(self)


_READ = TypeAdapter(Registration)


def living(events: Mapping[str, Mapping[str, Any]]) -> list[Registration]:
    """Of the last word of each runner: those that still speak. One that cannot be read opens nothing."""
    now_ms = time.time() * 1000
    found = []
    for name, event in events.items():
        if now_ms - event["at_ms"] > SILENT_MS:
            continue
        try:
            said = _READ.validate_python(dict(event))
        except ValidationError:
            said = Registration(name)
        if not said.ended:
            found.append(said)
    return found
