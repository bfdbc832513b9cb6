"""Rows of a benchmark: what was measured on each side, the ratio, the goal, and whether it was met."""

from __future__ import annotations

import datetime
import json
import os
import platform
import statistics
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from bench import machine

PAGE = Path("docs") / "BENCHMARKS.md"
RESULTS = Path("docs") / "benchmarks"


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

    @property
    def ratio(self) -> str:
        return f"{self.penstock / self.kafka:.2f} ×" if self.kafka else ""

    def cells(self) -> list[str]:
        kafka = _number(self.kafka) if self.kafka is not None else "–"
        verdict = "met" if self.met else "**missed**"
        return [self.name, _number(self.penstock), kafka, self.unit, self.ratio, self.goal, verdict]


def at_least(section: str, name: str, unit: str, penstock: float, kafka: float, times: float) -> Row:
    return Row(section, name, unit, penstock, kafka, f"≥ {times:g} ×", penstock >= times * kafka)


def at_most(section: str, name: str, unit: str, penstock: float, kafka: float, times: float) -> Row:
    label = f"≤ 1/{1 / times:g}" if times < 1 else f"≤ {times:g} ×"
    return Row(section, name, unit, penstock, kafka, label, penstock <= times * kafka)


def absolute(section: str, name: str, unit: str, value: float, limit: float) -> Row:
    return Row(section, name, unit, value, None, f"≤ {limit:g} {unit}", value <= limit)


def _number(value: float) -> str:
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def alternate(rounds: int, measures: dict[str, Callable[[], dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Run the measures of each side in turn, `rounds` times, and give the median of every figure."""
    seen: dict[str, dict[str, list[float]]] = {side: {} for side in measures}
    for _ in range(rounds):
        for side, measure in measures.items():
            machine.settle()
            for figure, value in measure().items():
                seen[side].setdefault(figure, []).append(value)
    return {
        side: {figure: statistics.median(values) for figure, values in figures.items()}
        for side, figures in seen.items()
    }


def table(rows: Iterable[Row]) -> str:
    lines = []
    section = None
    for row in rows:
        if row.section != section:
            section = row.section
            lines += ["", f"## {section}", "", f"| what | Penstock | {row.peer} | unit | ratio | goal | |"]
            lines.append("|---|---|---|---|---|---|---|")
        lines.append("| " + " | ".join(row.cells()) + " |")
    return "\n".join(lines)


def record(section: str, rows: list[Row], command: str) -> None:
    """Keep a section's figures, so that the page can be made of sections that were run at different times."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    described = f"{os.cpu_count()} cores, {_memory_gigabytes():.0f} GB, Linux, Python {platform.python_version()}"
    content = {"date": today, "command": command, "machine": described, "rows": [asdict(row) for row in rows]}
    (RESULTS / f"{section}.json").write_text(json.dumps(content, indent=1) + "\n")


def write_page(sections: list[str]) -> None:
    """docs/BENCHMARKS.md: the last table of each section, and the notes kept beside the figures."""
    parts = [
        "# Benchmarks",
        "",
        "Penstock and Apache Kafka 4.3 in one run, alternating, medians. A missed goal is shown as missed.",
    ]
    for section in sections:
        source = RESULTS / f"{section}.json"
        if not source.exists():
            continue
        content = json.loads(source.read_text())
        parts.append(table(Row(**row) for row in content["rows"]))
        parts.append(f"\n{content['date']}, `{content['command']}`, {content['machine']}.")
        notes = RESULTS / f"{section}.notes.md"
        if notes.exists():
            parts.append("\n" + notes.read_text().strip())
    PAGE.write_text("\n".join(parts) + "\n")


def _memory_gigabytes() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
