"""The long form of the disk searches: `python -m penstock.testing.disk calls|power`, or one finding once more."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from penstock.testing.disk import crashes, faults

T = TypeVar("T")


def main() -> int:
    parser = argparse.ArgumentParser(prog="penstock.testing.disk", description=__doc__)
    parser.add_argument("what", help="calls: every call × every error; power: every crash point; or what was printed")
    parser.add_argument("--seeds", type=int, default=1, help="how many power losses at each crash point")
    parser.add_argument("--minutes", type=float, default=600.0, help="stop then, and say how far it came")
    arguments = parser.parse_args()
    if arguments.what == "calls":
        logging.disable(logging.CRITICAL)
        return _search(list(faults.plans(every_call=True)), faults.try_plan, arguments.minutes)
    if arguments.what == "power":
        logging.disable(logging.CRITICAL)
        points = crashes.count_changes()
        every = [crashes.Crash(number, seed) for seed in range(arguments.seeds) for number in range(points)]
        return _search(every, crashes.try_crash, arguments.minutes)
    if arguments.what.startswith("crash:"):
        crashes.try_crash(crashes.Crash.parse(arguments.what))
    else:
        faults.try_plan(faults.Plan.parse(arguments.what))
    print("no finding")
    return 0


def _search(things: Iterable[T], attempt: Callable[[T], object], minutes: float) -> int:
    everything = list(things)
    began = time.monotonic()
    findings = tried = 0
    for one in everything:
        if time.monotonic() - began > minutes * 60:
            break
        tried += 1
        try:
            attempt(one)
        except Exception as error:
            findings += 1
            print(f"python -m penstock.testing.disk '{one}': {type(error).__name__}: {error}", flush=True)
    seconds = time.monotonic() - began
    print(f"{tried} of {len(everything)} in {seconds:.0f} s, findings: {findings}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
