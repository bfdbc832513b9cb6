"""`python -m bench [section …] [--rounds N] [--seconds S]`: run, print, keep the last table in docs/BENCHMARKS.md."""

from __future__ import annotations

import argparse
import importlib
import sys

from bench import report
from penstock.testing.peers import PeerUnavailable

SECTIONS = {
    "broker": "bench.broker_scenarios",
    "fetches": "bench.fetch_scenarios",
    "coordinators": "bench.coordinator_scenarios",
    "cluster": "bench.cluster_scenarios",
    "spark": "bench.spark_scenarios",
    "pipelines": "bench.pipeline_scenarios",
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("sections", nargs="*", help=f"any of {', '.join(SECTIONS)}; all if none is named")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="length of one round of a load")
    parser.add_argument("--no-record", action="store_true", help="print only; leave docs/BENCHMARKS.md alone")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.sections if name not in SECTIONS]
    if unknown:
        parser.error(f"no section {unknown[0]!r}; there are {', '.join(SECTIONS)}")
    for name in arguments.sections or SECTIONS:
        try:
            rows = importlib.import_module(SECTIONS[name]).run(arguments.rounds, arguments.seconds)
        except PeerUnavailable as reason:
            print(f"{name}: cannot be measured here: {reason}", file=sys.stderr)
            return 1
        print(report.table(rows), flush=True)
        if not arguments.no_record:
            report.record(name, rows, f"make bench ARGS='{name} --rounds {arguments.rounds}'")
    if not arguments.no_record:
        report.write_page(list(SECTIONS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
