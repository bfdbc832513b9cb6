"""Every disk call fails once: a disk that counts its calls by where they come from, and refuses the one it is told."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from penstock.log import disk
from penstock.testing.disk.workload import Life

ERRORS: Final = ("ENOSPC", "EIO", "EMFILE", "short")
_WRITES: Final = ("pwrite", "pwritev")
_NEEDS_SPACE: Final = ("pwrite", "pwritev", "mkdir")
_NEEDS_DESCRIPTOR: Final = ("open", "listdir")
_REAL: Final = {name: getattr(os, name) for name in disk.CALLS}


class Plan(NamedTuple):
    """Refuse the `number`-th call (from 1) of a place; then, if it lasts, every later one that could meet the same."""

    site: str
    number: int
    error: str
    lasts: bool = False

    def __str__(self) -> str:
        return f"{self.site}#{self.number}:{self.error}{':lasts' if self.lasts else ''}"

    @classmethod
    def parse(cls, text: str) -> Plan:
        place, error, *lasts = text.rsplit(":", 2) if text.endswith(":lasts") else text.rsplit(":", 1)
        site, _, number = place.rpartition("#")
        return cls(site, int(number), error, bool(lasts))


class FaultyDisk:
    """Hand in its `calls`."""

    def __init__(self, plan: Plan | None = None) -> None:
        self.plan = plan
        self.counted: Counter[str] = Counter()
        self.struck = False
        self.calls: dict[str, Callable[..., Any]] = {name: self._guarded(name) for name in disk.CALLS}

    def _guarded(self, name: str) -> Callable[..., Any]:
        real = (lambda fd: None) if name == "fsync" else _REAL[name]  # nothing here loses power

        def call(*arguments: Any, **options: Any) -> Any:
            site = _site(name)
            self.counted[site] += 1
            plan = self.plan
            if plan is not None and self._is_hit(plan, name, site, arguments):
                self.struck = True
                if plan.error == "short":
                    return _half(name, *arguments)
                number = getattr(errno, plan.error)
                raise OSError(number, os.strerror(number))
            return real(*arguments, **options)

        return call

    def _is_hit(self, plan: Plan, name: str, site: str, arguments: tuple[Any, ...]) -> bool:
        if site == plan.site:
            count = self.counted[site]
            return count == plan.number or (plan.lasts and count > plan.number)
        if not (plan.lasts and self.struck):
            return False
        if plan.error == "ENOSPC":
            return name in _NEEDS_SPACE or (name == "open" and bool(arguments[1] & os.O_CREAT))
        return plan.error == "EMFILE" and name in _NEEDS_DESCRIPTOR


def _site(name: str) -> str:
    frame = sys._getframe(2)
    if frame.f_code.co_filename == disk.__file__ and frame.f_back is not None:
        frame = frame.f_back
    caller = frame.f_back
    behind = "" if caller is None else f"<{caller.f_code.co_name}"
    return f"{name}@{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_name}{behind}"


def _half(name: str, fd: int, data: Any, position: int) -> int:
    joined = data if name == "pwrite" else b"".join(bytes(part) for part in data)
    return int(os.pwrite(fd, memoryview(joined)[: max(len(joined) // 2, 1)], position))


def count_calls() -> Counter[str]:
    """How often each place calls in an undisturbed life."""
    counting = FaultyDisk()
    _live(counting)
    return counting.counted


def _live(faulty: FaultyDisk) -> Life:
    folder = Path(tempfile.mkdtemp(prefix="disk-search-"))
    life = Life(folder / "logs")
    try:
        with disk.handed_in(faulty.calls):
            life.run()
            faulty.plan = None
            life.settle()
    finally:
        if life.manager is not None:
            life.stop(clean=False)
        shutil.rmtree(folder, ignore_errors=True)
    return life


def try_plan(plan: Plan) -> Life:
    """Live through one fault; `workload.Violation` or any other exception is a finding."""
    return _live(FaultyDisk(plan))


def plans(every_call: bool) -> Iterator[Plan]:
    """Each place × each error, once and lasting, at the first, the middle and the last call, or at every call."""
    yield from plans_of(count_calls(), every_call)


def plans_of(counted: Counter[str], every_call: bool) -> Iterator[Plan]:
    for site, count in sorted(counted.items()):
        numbers = range(1, count + 1) if every_call else sorted({1, (count + 1) // 2, count})
        writes = site.partition("@")[0] in _WRITES
        for error in ERRORS:
            if error == "short" and not writes:
                continue
            for number in numbers:
                yield Plan(site, number, error)
                if error != "short":
                    yield Plan(site, number, error, lasts=True)
