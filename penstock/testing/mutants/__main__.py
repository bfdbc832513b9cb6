"""`python -m penstock.testing.mutants`: every wrong rule into a copy of the tree, one by one; each must be noticed."""

from __future__ import annotations

import argparse
import atexit
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed

from penstock.testing.mutants.catalogue import MUTANTS
from penstock.testing.mutants.model import SECONDS_OF_CPU, Copy, Mutant, Verdict, stale

EQUIVALENT_AT_MOST = 5


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m penstock.testing.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="only these; all if none is named")
    parser.add_argument("--among", nargs="+", help="tests to look for a killer among, instead of the named ones")
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    complaints = stale(MUTANTS) if not arguments.among else []
    for complaint in complaints:
        print(complaint)
    chosen = [m for m in MUTANTS if not arguments.names or m.name in arguments.names]
    unknown = set(arguments.names) - {m.name for m in MUTANTS}
    if unknown or complaints:
        print(f"no such mutant: {', '.join(sorted(unknown))}" if unknown else "nothing was tried")
        return 2
    equivalent = [m for m in chosen if m.is_equivalent and not arguments.among]
    tried = [m for m in chosen if m not in equivalent]
    if not arguments.among and not _all_pass(tried):
        return 2
    print(f"| {'mutant':36} | {'verdict':8} | CPU s | by |\n|{'-' * 38}|{'-' * 10}|{'-' * 7}|----|")
    began = time.monotonic()
    survived = slow = 0
    with ProcessPoolExecutor(arguments.processes, initializer=_begin) as pool:
        jobs = {pool.submit(_judge, mutant, arguments.among or [mutant.killer]): mutant for mutant in tried}
        for job in as_completed(jobs):
            mutant, verdict = jobs[job], job.result()
            survived += not verdict.killed
            slow += verdict.killed and verdict.cpu_seconds > SECONDS_OF_CPU and not arguments.among
            word = "killed" if verdict.killed else "SURVIVED"
            print(f"| {mutant.name:36} | {word:8} | {verdict.cpu_seconds:5.1f} | {verdict.word} |", flush=True)
    for mutant in equivalent:
        print(f"| {mutant.name:36} | {'same':8} |     0 | {mutant.killer.removeprefix('equivalent: ')} |")
    print(
        f"{len(tried) - survived} of {len(tried)} killed in {time.monotonic() - began:.0f} s, {survived} survived,"
        f" {slow} by a killer above {SECONDS_OF_CPU:.0f} s of CPU, {len(equivalent)} equivalent"
    )
    return 1 if survived or slow or len(equivalent) > EQUIVALENT_AT_MOST else 0


_copies: list[Copy] = []  # of this process


def _begin() -> None:
    _copies.append(Copy())
    atexit.register(_copies[0].remove)


def _judge(mutant: Mutant, killers: list[str]) -> Verdict:
    return _copies[0].judge(mutant, killers)


def _all_pass(mutants: list[Mutant]) -> bool:
    """Without a wrong rule no killer may fail."""
    copy = Copy()
    try:
        killers = sorted({m.killer for m in mutants})
        seeds = [killer for killer in killers if killer.startswith("seed ")]
        tests = [killer for killer in killers if killer not in seeds]
        for asked in [*([tests] if tests else []), *([seed] for seed in seeds)]:
            verdict = copy.ask(asked)
            if verdict.killed or verdict.word:
                print(f"without any wrong rule: {verdict.word}")
                return False
    finally:
        copy.remove()
    return True


if __name__ == "__main__":
    sys.exit(main())
