"""Rows of a benchmark: what was measured on each side, its spread, the ratio, the goal, and whether it was met."""

from __future__ import annotations

import datetime
import json
import math
import os
import platform
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from bench import machine, stalls

PAGE = Path("docs") / "BENCHMARKS.md"
RESULTS = Path("docs") / "benchmarks"
STALL_GOAL_MS = 20.0
MOST_WARM_ROUNDS = 6
WARMER = 0.9  # a round that costs less than this share of the one before says that there is more to come


class Median(float):
    """The median of several rounds, which still knows how far they lay apart."""

    low: float
    high: float

    @classmethod
    def of(cls, values: list[float]) -> Median:
        median = cls(statistics.median(values))
        median.low, median.high = min(values), max(values)
        return median


@dataclass(frozen=True)
class Row:
    section: str
    name: str
    unit: str
    penstock: float
    kafka: float | None
    goal: str
    met: bool
    peer: str = "Apache Kafka"
    spread: str = ""
    """Lowest and highest round of ours, and of theirs."""
    stall_ms: float | None = None
    scenario: str = ""
    measured: str = ""

    @property
    def ratio(self) -> str:
        return f"{self.penstock / self.kafka:.2f} ×" if self.kafka else ""

    def cells(self) -> list[str]:
        kafka = _number(self.kafka) if self.kafka is not None else "–"
        verdict = "met" if self.met else "**missed**"
        stall = "" if self.stall_ms is None else f"{self.stall_ms:.1f} ms"
        if self.stall_ms is not None and self.stall_ms > STALL_GOAL_MS:
            stall = f"**{stall}**"
        numbers = [_number(self.penstock), kafka, self.unit, self.ratio, self.goal, verdict]
        return [self.name, *numbers, self.spread, stall, " ".join(filter(None, (self.measured, self.scenario)))]


def at_least(section: str, name: str, unit: str, penstock: float, kafka: float, times: float) -> Row:
    return _row(section, name, unit, penstock, kafka, f"≥ {times:g} ×", penstock >= times * kafka)


def at_most(section: str, name: str, unit: str, penstock: float, kafka: float, times: float) -> Row:
    whole = times < 1 and abs(1 / times - round(1 / times)) < 1e-9
    label = f"≤ 1/{1 / times:g}" if whole else f"≤ {times:g} ×"
    return _row(section, name, unit, penstock, kafka, label, penstock <= times * kafka)


def absolute(section: str, name: str, unit: str, value: float, limit: float) -> Row:
    return _row(section, name, unit, value, None, f"≤ {limit:g} {unit}", value <= limit)


def _row(section: str, name: str, unit: str, ours: float, theirs: float | None, goal: str, met: bool) -> Row:
    sides = [f"{_number(side.low)}–{_number(side.high)}" for side in (ours, theirs) if isinstance(side, Median)]
    return Row(section, name, unit, float(ours), None if theirs is None else float(theirs), goal, met,
               spread=" / ".join(sides))  # fmt: skip


def _number(value: float) -> str:
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def warm(measures: Mapping[str, Callable[[], dict[str, float]]]) -> None:
    """Run each side until it does not get cheaper any more: a JVM compiles what it sees often."""
    for measure in measures.values():
        least = math.inf
        for _ in range(MOST_WARM_ROUNDS):
            figures = measure()
            cost = figures.get("cpu", figures.get("µs", 0.0))
            if cost > WARMER * least:
                break
            least = min(cost, least)


def alternate(
    rounds: int, measures: Mapping[str, Callable[[], dict[str, float]]], fresh_memory: bool = True
) -> dict[str, dict[str, float]]:
    """Run the measures of each side in turn, `rounds` times, and give the median of every figure.

    `fresh_memory`: where a round fills the page cache, each begins with memory that is really there.
    """
    seen: dict[str, dict[str, list[float]]] = {side: {} for side in measures}
    for _ in range(rounds):
        for side, measure in measures.items():
            machine.settle(fresh_memory)
            with stalls.watching():
                figures = measure()
            for figure, value in figures.items():
                seen[side].setdefault(figure, []).append(value)
    return {side: {figure: Median.of(values) for figure, values in figures.items()} for side, figures in seen.items()}


def table(rows: Iterable[Row]) -> str:
    lines = []
    section = None
    for row in rows:
        if row.section != section:
            section = row.section
            lines += ["", f"## {section}", ""]
            lines.append(f"| what | Penstock | {row.peer} | unit | ratio | goal | | rounds | stall | measured |")
            lines.append("|---|---|---|---|---|---|---|---|---|---|")
        lines.append("| " + " | ".join(row.cells()) + " |")
    return "\n".join(lines)


def stamped(rows: list[Row], scenario: str, rounds: int) -> list[Row]:
    """With what is known of a scenario as a whole."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    measured, stall_ms = f"{today}, {rounds} rounds,", stalls.take_worst_ms()
    return [replace(row, scenario=scenario, measured=measured, stall_ms=stall_ms) for row in rows]


def record(section: str, rows: list[Row], order: list[str]) -> None:
    """Keep the figures of the scenarios that were run; those of the others stay as they were measured."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    source = RESULTS / f"{section}.json"
    known = [Row(**row) for row in json.loads(source.read_text())["rows"]] if source.exists() else []
    fresh = {row.scenario for row in rows}
    names = {row.name for row in rows}
    merged = [row for row in known if row.scenario not in fresh and row.name not in names] + rows
    merged.sort(key=lambda row: order.index(row.scenario) if row.scenario in order else -1)
    described = f"{os.cpu_count()} cores, {_memory_gigabytes():.0f} GB, Linux, Python {platform.python_version()}"
    content = {"machine": described, "rows": [asdict(row) for row in merged]}
    source.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def write_page(sections: list[str]) -> None:
    """docs/BENCHMARKS.md: the last figures of each section, and the notes kept beside them."""
    parts = [
        "# Benchmarks",
        "",
        "Penstock and Apache Kafka 4.3 in one run, alternating, medians. A missed goal is shown as missed.",
        "`rounds`: lowest and highest round, ours / theirs. `stall`: longest stand-still of Penstock's event loop,",
        f"waiting for a core not counted (goal ≤ {STALL_GOAL_MS:g} ms). What stands last under `measured` repeats it:",
        "`make bench ARGS=SECTION.SCENARIO`.",
    ]
    for section in sections:
        source = RESULTS / f"{section}.json"
        if not source.exists():
            continue
        content = json.loads(source.read_text())
        parts.append(table(Row(**row) for row in content["rows"]))
        parts.append(f"\n{content['machine']}.")
        notes = RESULTS / f"{section}.notes.md"
        if notes.exists():
            parts.append("\n" + notes.read_text().strip())
    others = [notes for notes in sorted(RESULTS.glob("*.notes.md")) if notes.name.partition(".")[0] not in sections]
    parts += ["\n" + notes.read_text().strip() for notes in others]  # measured by commands of their own
    PAGE.write_text("\n".join(parts) + "\n")


def _memory_gigabytes() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
