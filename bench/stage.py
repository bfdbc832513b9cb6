"""A stage: brokers that stand up once, and the scenarios that are played on them; each scenario can be chosen alone."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from bench.report import Row

Scenario = Callable[[Any, int, float], list[Row]]
"""(what the stage opened, rounds, seconds of a round) → rows."""


@dataclass(frozen=True)
class Stage:
    scenarios: dict[str, Scenario]
    open: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext


def whole(run: Callable[[int, float], list[Row]]) -> list[Stage]:
    """A section that is run as one."""
    return [Stage({"all": lambda _, rounds, seconds: run(rounds, seconds)})]
