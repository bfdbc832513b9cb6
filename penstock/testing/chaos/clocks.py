"""Wall clocks that step, on one host or on all: libfaketime, where it is installed."""

from __future__ import annotations

import ctypes.util
import importlib.util
import random
from pathlib import Path

from penstock.testing.chaos.damage import Damage
from penstock.testing.chaos.hosts import Hosts
from penstock.testing.chaos.process_faults import Say, some_broker

STEPS_SECONDS = (-3600, -60, 60, 3600)


def faketime_library() -> str | None:
    """libfaketime of the system or of the PyPI package, if there is one."""
    spec = importlib.util.find_spec("libfaketime")
    if spec is not None and spec.origin is not None:
        found = sorted(Path(spec.origin).parent.rglob("libfaketime*.so.1"))
        if found:
            return str(found[0])
    for folder in ("/usr/lib/x86_64-linux-gnu/faketime", "/usr/lib/aarch64-linux-gnu/faketime", "/usr/lib/faketime"):
        candidate = Path(folder) / "libfaketime.so.1"
        if candidate.exists():
            return str(candidate)
    return ctypes.util.find_library("faketime")


def faketime_environment(folder: Path, host: int) -> dict[str, str]:
    """Processes started with it take the offset of their wall clock from a file, which a fault rewrites."""
    library = faketime_library()
    if library is None:
        return {}
    offset = clock_file(folder, host)
    offset.write_text("+0s\n")
    return {
        "LD_PRELOAD": library,
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }


def clock_file(folder: Path, host: int) -> Path:
    return folder / f"clock-offset-{host}"


def step_all(hosts: Hosts, dice: random.Random, say: Say) -> Damage:
    return _step(hosts, sorted(hosts.brokers), dice, say)


def step_one(hosts: Hosts, dice: random.Random, say: Say) -> Damage:
    return _step(hosts, [some_broker(hosts, dice)], dice, say)


def _step(hosts: Hosts, numbers: list[int], dice: random.Random, say: Say) -> Damage:
    seconds = dice.choice(STEPS_SECONDS)
    say(f"  wall clocks of {numbers} are stepped by {seconds} s")
    files = [clock_file(hosts.folder, number) for number in numbers]
    for file in files:
        file.write_text(f"{seconds:+d}s\n")

    def heal() -> None:
        for file in files:
            file.write_text("+0s\n")

    return Damage(heal)
