"""JSON that somebody else wrote: a ValueError for whatever is none, too deep, or holds a number that is not finite."""

from __future__ import annotations

import json
import math
from typing import Any

__all__ = ["load_json"]


def load_json(data: bytes | str) -> Any:
    try:
        return json.loads(data, parse_float=_finite, parse_constant=_refused)
    except RecursionError:
        raise ValueError("nested too deep") from None


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is too large")
    return value


def _refused(text: str) -> float:
    raise ValueError(f"{text} is no number")
