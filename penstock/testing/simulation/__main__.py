"""`python -m penstock.testing.simulation --seeds N [--first F] | --seed S [--trace] [--partitions P]` and more"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Iterator

from penstock.testing.simulation.run import run_seed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m penstock.testing.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="run this one and print its trace if it fails")
    parser.add_argument("--seconds", type=float, default=12.0, help="virtual seconds with faults")
    parser.add_argument("--partitions", type=int, help="of the topic; 1 to 3 by the seed if it is not said")
    parser.add_argument("--min-isr-changes", action="store_true", help="min.insync.replicas changes under way")
    parser.add_argument("--real-logs", action="store_true", help="the real log over files that lose unsynced pages")
    parser.add_argument("--coordinators", action="store_true", help="and groups and transactions, over real logs")
    parser.add_argument("--trace", action="store_true", help="print the trace also of a good run")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    given = (options.seconds, options.partitions, options.min_isr_changes, options.real_logs, options.coordinators)
    if options.seed is not None:
        outcome = run_seed(options.seed, *given)
        if outcome.violation or options.trace:
            print("\n".join(outcome.trace))
        print(outcome.summary)
        return 1 if outcome.violation else 0
    failed: list[int] = []
    started = time.monotonic()
    acknowledged = excused = leaders = messages = 0

    def figures(done: int) -> str:
        return (
            f"{done} seeds in {time.monotonic() - started:.1f} s, {messages} messages, {leaders} leaders,"
            f" {acknowledged} records acknowledged, {excused} with excused loss, {len(failed)} failed: {failed}"
        )

    for seed in range(options.first, options.first + options.seeds):
        outcome = run_seed(seed, *given)
        acknowledged += outcome.acknowledged
        excused += outcome.excused
        leaders += outcome.leader_changes
        messages += outcome.messages
        if outcome.violation:
            failed.append(seed)
            print(outcome.summary, flush=True)
            print(f"  replay: python -m penstock.testing.simulation {' '.join(_repeated())} --seed {seed}", flush=True)
        done = seed - options.first + 1
        if done % 100 == 0 and done < options.seeds:
            print(f"  so far {figures(done)}", flush=True)
    print(figures(options.seeds))
    return 1 if failed else 0


def _repeated() -> list[str]:
    """What was given besides the seeds."""
    words = iter(sys.argv[1:])
    return [part for word in words for part in _kept(word, words)]


def _kept(word: str, words: Iterator[str]) -> list[str]:
    if word.split("=")[0] in ("--seeds", "--first"):
        if "=" not in word:
            next(words)
        return []
    return [word]


if __name__ == "__main__":
    sys.exit(main())
