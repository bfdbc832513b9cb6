"""Charts of figures over time: drawn as SVG in the theme's own colours, so that they follow light and dark."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from nicegui import ui

from penstock.console.theme import CHART_COLOURS
from penstock.console.widgets import numbers

LEAST_MS = 300_000
Points = Sequence[tuple[int, float]]


class TimeChart:
    """Lines over time; `unit` is `B/s` for bytes (then 1024 counts) or anything else."""

    def __init__(self, names: Sequence[str], *, unit: str, label: str, area: bool = True) -> None:
        self._names, self._unit, self._area = list(names), unit, area
        self._made = ui.echart(self._options({}), renderer="svg").classes("pk-chart")
        self._made.props(f'role=img aria-label="{label}"')

    def show(self, series: Mapping[str, Points]) -> None:
        """Points (ms, value) by name."""
        self._made.options.update(self._options(series))
        self._made.update()

    def _options(self, series: Mapping[str, Points]) -> dict[str, Any]:
        ink, line = "var(--pk-ink-faint)", "var(--pk-line)"
        is_bytes = self._unit == "B/s" or self._unit == "B"
        divisor, unit = _scale(series, is_bytes, self._unit)
        return {
            "animation": False,
            "useUTC": False,
            "textStyle": {"fontFamily": "var(--pk-sans)", "color": ink},
            "color": list(CHART_COLOURS),
            "grid": {"left": 8, "right": 24, "top": 30, "bottom": 4, "containLabel": True},
            "legend": {
                "show": len(self._names) > 1,
                # At the right, away from the unit, which it covered at the left; with arrows if there is little room.
                "type": "scroll",
                "top": 0,
                "right": 0,
                "width": "68%",
                "icon": "roundRect",
                "itemWidth": 10,
                "itemHeight": 10,
                "textStyle": {"color": "var(--pk-ink-soft)"},
            },
            "tooltip": {
                "trigger": "axis",
                "backgroundColor": "var(--pk-surface)",
                "borderColor": line,
                "textStyle": {"color": "var(--pk-ink)"},
            },
            "xAxis": {
                "type": "time",
                **_span(series),
                "axisLine": {"lineStyle": {"color": line}},
                "axisLabel": {"color": ink, "hideOverlap": True},
                "axisTick": {"show": False},
                "splitLine": {"show": False},
            },
            "yAxis": {
                "type": "value",
                "name": unit,
                "min": 0,
                "minInterval": 0,
                "nameTextStyle": {"color": ink, "align": "left"},
                "axisLabel": {"color": ink},
                "splitLine": {"lineStyle": {"color": line}},
            },
            "series": [
                {
                    "name": name,
                    "type": "line",
                    "showSymbol": False,
                    "lineStyle": {"width": 2},
                    "areaStyle": {"opacity": 0.12} if self._area else None,
                    "data": [[at, round(value / divisor, 2)] for at, value in series.get(name, ())],
                }
                for name in self._names
            ],
        }


def _span(series: Mapping[str, Points]) -> dict[str, int]:
    """From the first point to now, five minutes at least: an empty chart has a time axis too."""
    now = int(time.time() * 1000)
    first = min((points[0][0] for points in series.values() if points), default=now)
    return {"min": min(first, now - LEAST_MS), "max": now}


def _scale(series: Mapping[str, Points], is_bytes: bool, unit: str) -> tuple[float, str]:
    if not is_bytes:
        return 1, unit
    largest = max((value for points in series.values() for _, value in points), default=0)
    _, shown = numbers.size(largest)
    factor = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}.get(shown, 1)
    return factor, shown + ("/s" if unit.endswith("/s") else "")
