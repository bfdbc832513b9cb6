"""What the help of each command and subcommand costs above a bare interpreter: `python -m bench.help_times`.

Processor time, the least of several: other load on the machine hardly counts.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator

from penstock.cli.commands import COMMANDS
from penstock.cli.main import build

ROUNDS = 5
GOAL_MS = 200


def least_ms(arguments: list[str]) -> float:
    """Processor time of a Python with these arguments."""
    found = []
    for _ in range(ROUNDS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(found) * 1000


def commands() -> Iterator[list[str]]:
    """The words of each: none, a command, a command and its subcommand."""
    yield []
    root = build()
    for name in COMMANDS:
        yield [name]
        yield from ([name, nested] for nested in getattr(root.get_command(None, name), "commands", {}))


def main() -> int:
    bare = least_ms(["-c", "pass"])
    print(f"a bare interpreter: {bare:.0f} ms; above it, goal ≤ {GOAL_MS} ms:")
    most = 0.0
    for words in commands():
        above = least_ms(["-m", "penstock.cli.main", *words, "--help"]) - bare
        print(f"penstock {' '.join([*words, '--help'])}: {above:.0f} ms")
        most = max(most, above)
    return 0 if most <= GOAL_MS else 1


if __name__ == "__main__":
    sys.exit(main())
