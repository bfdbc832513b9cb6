"""One wrong rule as data, how it is put into a copy of the tree, and whether its killer notices."""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

TREE: Final = Path(__file__).resolve().parents[3]
PARTS: Final = ("penstock", "tests", "pyproject.toml")
SECONDS_OF_CPU: Final = 20.0
"""What a killer may cost. Not of wall clock: that says how busy the machine is."""
PATIENCE_SECONDS: Final = 240.0


class Mutant(NamedTuple):
    """`line` stands in `file` as it is now (once, or first behind the line that begins with `within`)."""

    name: str
    file: str
    line: str
    wrong: str
    breaks: str
    killer: str
    """A test as pytest names it, or `seed N` of the simulation; `equivalent: why` where nobody could notice."""
    within: str = ""

    @property
    def is_equivalent(self) -> bool:
        return self.killer.startswith("equivalent: ")


class Stale(Exception):
    """The line that a mutant changes is not in the code any more."""


class Verdict(NamedTuple):
    killed: bool
    cpu_seconds: float
    word: str


def mutated(source: str, mutant: Mutant) -> str:
    """The text of the file with the wrong line in it."""
    lines = source.split("\n")
    first = 0
    if mutant.within:
        starts = [n for n, text in enumerate(lines) if text.strip().startswith(mutant.within)]
        if len(starts) != 1:
            raise Stale(f"{mutant.name}: {len(starts)} lines of {mutant.file} begin with {mutant.within!r}")
        first = starts[0] + 1
    found = [n for n in range(first, len(lines)) if lines[n].strip() == mutant.line]
    if not found or (len(found) > 1 and not mutant.within):
        raise Stale(f"{mutant.name}: {mutant.file} has this line {len(found)} times: {mutant.line}")
    at = found[0]
    indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
    lines[at] = indent + mutant.wrong
    return "\n".join(lines)


def stale(mutants: list[Mutant]) -> list[str]:
    """What is out of date about the list: lines that are gone, wrong lines that do not compile, tests that are gone."""
    complaints = []
    for mutant in mutants:
        try:
            compile(mutated((TREE / mutant.file).read_text(), mutant), mutant.file, "exec")
        except (Stale, SyntaxError, OSError) as error:
            complaints.append(f"the list is stale: {error}")
        if not mutant.is_equivalent and not mutant.killer.startswith("seed "):
            path, _, test = mutant.killer.partition("::")
            place = TREE / path
            name = re.escape(test.partition("[")[0])
            if not place.is_file() or not re.search(rf"def {name}\b", place.read_text()):
                complaints.append(f"the list is stale: {mutant.name} is killed by {mutant.killer}, which is not there")
    return complaints


class Copy:
    """A copy of the tree to be spoilt, with the interpreter of this one."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-mutants-"))
        for part in PARTS:
            if (TREE / part).is_dir():
                ignored = shutil.ignore_patterns("__pycache__", ".pytest_cache")
                shutil.copytree(TREE / part, self.folder / part, ignore=ignored)
            else:
                shutil.copy2(TREE / part, self.folder / part)

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def judge(self, mutant: Mutant, killers: list[str]) -> Verdict:
        """Put the wrong line in, ask the killers, take it out."""
        original = (self.folder / mutant.file).read_text()
        self._put(mutant.file, mutated(original, mutant))
        try:
            return self.ask(killers)
        finally:
            self._put(mutant.file, original)

    def _put(self, file: str, text: str) -> None:
        place = self.folder / file
        place.write_text(text)
        for compiled in (place.parent / "__pycache__").glob(f"{place.stem}.*.pyc"):
            compiled.unlink()  # it is known by second and size, which may be the same

    def ask(self, killers: list[str]) -> Verdict:
        """Whether one of these tests fails (or the seed finds a violation)."""
        if killers[0].startswith("seed "):
            command = ["-m", "penstock.testing.simulation", "--seed", killers[0].removeprefix("seed ")]
        else:
            plugins = ["-p", "pytest_timeout", "-p", "penstock.testing.pytest_plugin", "-p", "no:cacheprovider"]
            command = ["-m", "pytest", "-x", "-q", *plugins, *killers]
        before, began = _cpu(), time.monotonic()
        environment = {**os.environ, "PYTHONPATH": str(self.folder), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # modules that are compiled once serve a hundred runs
        try:
            done = subprocess.run(
                [sys.executable, *command],
                cwd=self.folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=PATIENCE_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Verdict(False, time.monotonic() - began, f"no word after {PATIENCE_SECONDS:.0f} s")
        spent = _cpu() - before
        if done.returncode == 0:
            return Verdict(False, spent, "")
        if done.returncode == 1:
            failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
            return Verdict(True, spent, failed[0] if failed else killers[0])
        return Verdict(False, spent, f"exit {done.returncode}: {done.stdout[-400:]}")


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
