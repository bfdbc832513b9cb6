"""Lengths of time as people write them: `500 ms`, `5 seconds`, `10m`, `1 hour`, `7 days`."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

_UNITS_MS = {
    "ms": 1,
    "millisecond": 1,
    "s": 1000,
    "sec": 1000,
    "second": 1000,
    "m": 60_000,
    "min": 60_000,
    "minute": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
}
_SHAPE = re.compile(r"(\d+)\s*([a-z]+)", re.IGNORECASE)


def duration_ms(text: str) -> int:
    """The length in milliseconds; ValueError says how to write one."""
    found = _SHAPE.fullmatch(text.strip())
    unit = found.group(2).lower() if found else ""
    factor = _UNITS_MS.get(unit) or _UNITS_MS.get(unit.removesuffix("s"))
    if found is None or factor is None:
        raise ValueError(f"{text!r} is no length of time; write it like 500 ms, 5 seconds, 10 minutes or 1 hour")
    return int(found.group(1)) * factor


def _checked(text: str) -> str:
    duration_ms(text)
    return text


def spark_interval(text: str) -> str:
    """The same length in the words that Spark's windows and triggers take."""
    return f"{duration_ms(text)} milliseconds"


Duration = Annotated[str, AfterValidator(_checked)]
