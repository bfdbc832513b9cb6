"""What a soak leaves behind: a page with its figures, and a graph of memory and descriptors over time."""

from __future__ import annotations

import datetime
import os
from dataclasses import dataclass

Figure = tuple[float, float, float]
"""(seconds, resident MB, descriptors)."""

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 820, 300, 60, 60, 30, 40


@dataclass(frozen=True)
class Facts:
    minutes: float
    loads: list[tuple[str, int, int]]
    """(name, done, errors)."""
    resources: list[tuple[str, float, float, float]]
    """(name, median of the second quarter, of the last one, the most)."""
    descriptors: dict[str, tuple[float, float]]
    """By what they are open on: medians of the same two quarters."""
    cpu_percent: float
    found: list[str]
    load_average: tuple[float, float]


def page(facts: Facts) -> str:
    loads = "\n".join(f"| {name} | {done:,} | {errors} |" for name, done, errors in facts.loads)
    resources = "\n".join(
        f"| {name} | {before:.1f} | {after:.1f} | {most:.1f} |" for name, before, after, most in facts.resources
    )
    kinds = ", ".join(f"{kind} {before:g} → {after:g}" for kind, (before, after) in facts.descriptors.items())
    flat = "nothing failed and nothing grows by more than 3 % and 2 MB, 3 descriptors or 2 threads"
    before, after = facts.load_average
    today = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"
    return f"""# Soak

{today}, `make prove-soak MINUTES={facts.minutes:g}`, {os.cpu_count()} cores, Linux;
load average {before:.1f} before and {after:.1f} at the end. The broker used {facts.cpu_percent:.0f} % of a core.

One broker with TLS, SCRAM, ACLs, quotas and sessions of a minute, under all of this at once:

| load | done | errors |
|---|---|---|
{loads}

| resource | median of the second quarter | median of the last quarter | most |
|---|---|---|---|
{resources}

Descriptors, second → last quarter: {kinds}.

Verdict: {"; ".join(facts.found) or flat}.

![memory and descriptors over time](soak.svg)
"""


def picture(figures: list[Figure]) -> str:
    """Both curves over the same minutes, each with its own scale."""
    seconds = max(one[0] for one in figures) or 1.0
    memory_top = max(one[1] for one in figures) * 1.2
    descriptors_top = max(one[2] for one in figures) * 1.2
    memory = _line([(one[0] / seconds, one[1] / memory_top) for one in figures])
    descriptors = _line([(one[0] / seconds, one[2] / descriptors_top) for one in figures])
    marks = []
    for step in range(6):
        x, y = _at(step / 5, step / 5)
        base = HEIGHT - BOTTOM
        marks.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#8884"/>')
        marks.append(f'<text x="{x:.1f}" y="{base + 18}" text-anchor="middle">{seconds * step / 300:.0f} min</text>')
        marks.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{memory_top * step / 5:.0f}</text>')
        marks.append(f'<text x="{WIDTH - RIGHT + 6}" y="{y + 4:.1f}">{descriptors_top * step / 5:.0f}</text>')
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif"
 font-size="11" role="img" aria-label="Memory and descriptors of the broker over time" fill="#777">
<text x="{LEFT}" y="18" fill="#2a78c5">memory, MB</text>
<text x="{WIDTH - RIGHT}" y="18" text-anchor="end" fill="#c5562a">descriptors</text>
{"".join(marks)}
<polyline points="{memory}" fill="none" stroke="#2a78c5" stroke-width="2"/>
<polyline points="{descriptors}" fill="none" stroke="#c5562a" stroke-width="2"/>
</svg>
"""


def _line(points: list[tuple[float, float]]) -> str:
    return " ".join("{:.1f},{:.1f}".format(*_at(x, y)) for x, y in points)


def _at(x: float, y: float) -> tuple[float, float]:
    return LEFT + x * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - y * (HEIGHT - TOP - BOTTOM)
