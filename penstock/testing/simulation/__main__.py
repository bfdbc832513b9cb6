"""`python -m penstock.testing.simulation --seeds N [--first F] | --seed S [--trace]`"""

from __future__ import annotations

import argparse
import logging
import sys
import time

from penstock.testing.simulation.run import run_seed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m penstock.testing.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="run this one and print its trace if it fails")
    parser.add_argument("--seconds", type=float, default=12.0, help="virtual seconds with faults")
    parser.add_argument("--trace", action="store_true", help="print the trace also of a good run")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    if options.seed is not None:
        outcome = run_seed(options.seed, options.seconds)
        if outcome.violation or options.trace:
            print("\n".join(outcome.trace))
        print(outcome.summary)
        return 1 if outcome.violation else 0
    failed = []
    started = time.monotonic()
    acknowledged = 0
    for seed in range(options.first, options.first + options.seeds):
        outcome = run_seed(seed, options.seconds)
        acknowledged += outcome.acknowledged
        if outcome.violation:
            failed.append(seed)
            print(outcome.summary, flush=True)
            print(f"  replay: python -m penstock.testing.simulation --seed {seed}", flush=True)
    print(
        f"{options.seeds} seeds in {time.monotonic() - started:.1f} s, {acknowledged} records acknowledged,"
        f" {len(failed)} failed: {failed}"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
