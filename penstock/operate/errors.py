"""What went wrong, said in one line, with what to do next, and the exit code that scripts may rely on."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from enum import IntEnum

LONGEST_IN_A_HINT = 60
NOBODY = "`penstock up` starts one here, -b HOST:PORT names another"


class ExitCode(IntEnum):
    """Stable: scripts depend on these."""

    OK = 0
    FAILED = 1  # the work was tried and failed
    USAGE = 2  # the command line makes no sense
    UNREACHABLE = 3  # no broker answers
    NOT_FOUND = 4  # an unknown topic, group, broker, pipeline, …
    REFUSED = 5  # the broker, or who checks a pipeline, said no (bad value, exists already, not allowed)
    INCOMPLETE = 6  # some of it was done; the output says which
    UNHEALTHY = 7  # doctor, verify and the like found problems
    INTERRUPTED = 130  # Ctrl-C


class UserError(Exception):
    """Shown to the user without a stack trace."""

    def __init__(self, message: str, hint: str | None = None, code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code


def usage_error(message: str, hint: str | None = None) -> UserError:
    return UserError(message, hint, ExitCode.USAGE)


def no_partition(topic: str, partition: int, known: Iterable[int], hint: str | None = None) -> UserError:
    """A partition that a topic lacks: the same mistake to every command."""
    highest = max(known, default=-1)
    there = "0" if highest == 0 else f"0 to {highest}"
    return UserError(f"{topic} has no partition {partition}", hint or f"its partitions are {there}", ExitCode.NOT_FOUND)


def not_found(kind: str, name: str, known: Iterable[str] = ()) -> UserError:
    """An unknown name, with the nearest known ones."""
    known = list(known)
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    if close:
        hint = f"did you mean {' or '.join(map(_short, close))}?"
    elif known:
        shown = ", ".join(_short(one) for one in sorted(known)[:5])
        hint = f"there is: {shown}{', …' if len(known) > 5 else ''}"
    else:
        hint = f"there is no {kind} yet"
    return UserError(f"there is no {kind} {name!r}", hint, ExitCode.NOT_FOUND)


def not_among(option: str, value: str, known: Iterable[str]) -> UserError:
    """A word that an option does not take."""
    return usage_error(f"{option} {value!r} is unknown", f"there is {', '.join(known)}")


def _short(name: str) -> str:
    """A hint is one line, however long names are."""
    return name if len(name) <= LONGEST_IN_A_HINT else f"{name[: LONGEST_IN_A_HINT - 1]}…"
