"""The long form of the disk searches: `python -m penstock.testing.disk calls|power`, or one finding once more."""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from penstock.testing.disk import cleaning, crashes, faults, store

_MEMORY = Path("/dev/shm")  # a disk without a platter: the searches count calls, not seconds


def main() -> int:
    parser = argparse.ArgumentParser(prog="penstock.testing.disk", description=__doc__)
    parser.add_argument("what", help="calls: every call × every error; power: every crash point; or what was printed")
    parser.add_argument("--seeds", type=int, default=1, help="how many power losses at each crash point")
    parser.add_argument("--minutes", type=float, default=600.0, help="stop then, and say how far it came")
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    if "TMPDIR" not in os.environ and os.access(_MEMORY, os.W_OK):
        tempfile.tempdir = os.environ["TMPDIR"] = str(_MEMORY)
    if arguments.what == "calls":
        everything: list[object] = [
            *faults.plans(every_call=True),
            *store.plans(),
            *store.call_plans(),
            *cleaning.plans(every_call=True),
        ]
    elif arguments.what == "power":
        points = crashes.count_changes()
        everything = [crashes.Crash(number, seed) for seed in range(arguments.seeds) for number in range(points)]
    else:
        attempt(arguments.what)
        print("no finding")
        return 0
    findings = _search([str(one) for one in everything], arguments.minutes, arguments.processes)
    if arguments.what == "calls":
        findings += _fill_small_disk()
    return 1 if findings else 0


_KINDS: dict[str, Callable[[str], object]] = {
    "crash:": lambda text: crashes.try_crash(crashes.Crash.parse(text)),
    "store-call:": lambda text: store.try_call_plan(store.CallPlan.parse(text)),
    "store#": lambda text: store.try_plan(store.StorePlan.parse(text)),
    "cleaning:": lambda text: cleaning.try_plan(cleaning.CleaningPlan.parse(text)),
}


def attempt(text: str) -> None:
    """What the text names, whichever search it belongs to."""
    for prefix, run in _KINDS.items():
        if text.startswith(prefix):
            run(text)
            return
    faults.try_plan(faults.Plan.parse(text))


def _attempt_some(texts: list[str]) -> list[str]:
    """What was found."""
    logging.disable(logging.CRITICAL)
    found = []
    for text in texts:
        try:
            attempt(text)
        except Exception as error:
            found.append(f"python -m penstock.testing.disk '{text}': {type(error).__name__}: {error}")
    return found


def _search(everything: list[str], minutes: float, processes: int) -> int:
    began = time.monotonic()
    findings = tried = 0
    with ProcessPoolExecutor(processes) as pool:
        waiting = iter(_handfuls(everything, 16))
        running = {pool.submit(_attempt_some, some): len(some) for some in itertools.islice(waiting, processes)}
        while running:
            job = next(iter(running))
            found = job.result()
            tried += running.pop(job)
            findings += len(found)
            for line in found:
                print(line, flush=True)
            more = next(waiting, None) if time.monotonic() - began < minutes * 60 else None
            if more is not None:
                running[pool.submit(_attempt_some, more)] = len(more)
    seconds = time.monotonic() - began
    print(f"{tried} of {len(everything)} in {seconds:.0f} s, findings: {findings}")
    return findings


def _handfuls(everything: list[str], size: int) -> Iterable[list[str]]:
    return (everything[at : at + size] for at in range(0, len(everything), size))


def _fill_small_disk() -> int:
    with store.small_disk() as folder:
        if folder is None:
            print("a file system without room: not tried, it takes root to mount one")
            return 0
        try:
            told, refused = store.fill_small_disk(folder)
        except Exception as error:
            print(f"a file system without room: {type(error).__name__}: {error}")
            return 1
    print(f"a store on a full file system: {told} writes acknowledged, {refused} refused, all of the former there")
    return 0


if __name__ == "__main__":
    sys.exit(main())
