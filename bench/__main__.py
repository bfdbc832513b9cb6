"""`python -m bench [section | section.scenario …] [--rounds N] [--seconds S]`: run, print, keep the figures in
docs/BENCHMARKS.md. `--list` names the scenarios."""

from __future__ import annotations

import argparse
import importlib
import sys

from bench import report
from bench.report import Row
from bench.stage import Stage
from penstock.testing.peers import PeerUnavailable

SECTIONS = {
    "broker": "bench.broker_scenarios",
    "fetches": "bench.fetch_scenarios",
    "coordinators": "bench.coordinator_scenarios",
    "cluster": "bench.cluster_scenarios",
    "wide": "bench.wide_scenarios",
    "security": "bench.secured_scenarios",
    "spark": "bench.spark_scenarios",
    "pipelines": "bench.pipeline_scenarios",
}


def stages(section: str) -> list[Stage]:
    found: list[Stage] = importlib.import_module(SECTIONS[section]).STAGES
    return found


def names(section: str) -> list[str]:
    return [f"{section}.{name}" for stage in stages(section) for name in stage.scenarios]


def play(section: str, chosen: set[str], rounds: int, seconds: float) -> list[Row]:
    rows: list[Row] = []
    for stage in stages(section):
        wanted = {name: scenario for name, scenario in stage.scenarios.items() if f"{section}.{name}" in chosen}
        if not wanted:
            continue
        with stage.open() as there:
            for name, scenario in wanted.items():
                played = report.stamped(scenario(there, rounds, seconds), f"{section}.{name}", rounds)
                print(report.table(played), flush=True)
                rows += played
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("chosen", nargs="*", help=f"any of {', '.join(SECTIONS)}, or section.scenario; all if none")
    parser.add_argument("--list", action="store_true", help="name the scenarios, run nothing")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="length of one round of a load")
    parser.add_argument("--no-record", action="store_true", help="print only; leave docs/BENCHMARKS.md alone")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(name for section in SECTIONS for name in names(section)))
        return 0
    chosen: set[str] = set()
    for wanted in arguments.chosen or SECTIONS:
        section = wanted.partition(".")[0]
        known = names(section) if section in SECTIONS else []
        if not known or wanted not in (section, *known):
            parser.error(f"no section or scenario {wanted!r}; --list names them")
        chosen.update([wanted] if wanted in known else known)
    for section in [known for known in SECTIONS if any(name.startswith(f"{known}.") for name in chosen)]:
        try:
            rows = play(section, chosen, arguments.rounds, arguments.seconds)
        except PeerUnavailable as reason:
            print(f"{section}: cannot be measured here: {reason}", file=sys.stderr)
            return 1
        if rows and not arguments.no_record:
            report.record(section, rows, names(section))
            report.write_page(list(SECTIONS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
