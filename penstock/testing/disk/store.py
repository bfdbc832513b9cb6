"""The metadata store on a disk that refuses: an error at every statement and commit, at every system call, and no room.

One scripted life of an embedded store. What it was told is written must be there after the fault and after a restart;
what was refused is there as a whole or not at all; numbers never repeat; and when the disk is well again the store
works without a restart, or said at its start why it does not.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from penstock.base.clock import ManualClock
from penstock.store.embedded import EmbeddedDatabase, EmbeddedStore, connect
from penstock.store.interface import ConnectionLost, Create, Delete, MultiFailed, NodeExists, NoNode, Operation, SetData
from penstock.testing.disk.workload import Violation

MESSAGES: Final = {"ENOSPC": "database or disk is full", "EIO": "disk I/O error"}
SYSTEM_CALLS: Final = ("pwrite64", "fdatasync", "fsync", "ftruncate", "openat", "pread64", "unlink")
_SCRIPT: Final[tuple[tuple[Operation, ...], ...]] = (
    (Create("/brokers", b""),),
    (Create("/topics", b""), Create("/topics/t", b"one")),
    (SetData("/topics/t", b"two", -1), Create("/topics/u", b"x" * 5000)),
    (Create("/me", b"", ephemeral=True),),
    (Delete("/topics/u"), SetData("/brokers", b"seen", -1)),
    (Create("/topics/v", b"y" * 9000), Create("/topics/w", b"z" * 9000)),
    (SetData("/topics/v", b"v", -1), Delete("/topics/w")),
    (Create("/last", b"word"),),
)


class StorePlan(NamedTuple):
    """Refuse the `number`-th statement (from 1), and if it lasts every later one."""

    number: int
    error: str
    lasts: bool = False

    def __str__(self) -> str:
        return f"store#{self.number}:{self.error}{':lasts' if self.lasts else ''}"

    @classmethod
    def parse(cls, text: str) -> StorePlan:
        place, error, *lasts = text.split(":")
        return cls(int(place.partition("#")[2]), error, bool(lasts))


class FaultyConnection:
    """A connection that refuses statements; what it is asked for besides goes to the real one."""

    def __init__(self, real: sqlite3.Connection, faulty: FaultyStatements) -> None:
        self._real = real
        self._faulty = faulty

    def execute(self, statement: str, parameters: tuple[Any, ...] = ()) -> sqlite3.Cursor:
        self._faulty.count_or_refuse()
        return self._real.execute(statement, parameters)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class FaultyStatements:
    """Hand in its `connect`."""

    def __init__(self, plan: StorePlan | None = None) -> None:
        self.plan = plan
        self.count = 0

    def count_or_refuse(self) -> None:
        self.count += 1
        plan = self.plan
        if plan is not None and (self.count == plan.number or (plan.lasts and self.count > plan.number)):
            raise sqlite3.OperationalError(MESSAGES[plan.error])

    def connect(self, path: Path) -> sqlite3.Connection:
        return FaultyConnection(connect(path), self)  # type: ignore[return-value]


class StoreLife:
    """What the store was told, and what it said."""

    def __init__(self, path: Path, faulty: FaultyStatements | None = None) -> None:
        self.path = path
        self._faulty = faulty
        self.told: list[int] = []  # steps of the script that were acknowledged
        self.refused = 0

    async def run(self) -> None:
        half = len(_SCRIPT) // 2
        await self._live(range(half))
        await self._live(range(half, len(_SCRIPT)))

    async def _live(self, steps: range) -> None:
        faulty = self._faulty
        open_with = connect if faulty is None else faulty.connect
        store = EmbeddedStore(EmbeddedDatabase(self.path, ManualClock(), open_with))
        try:
            await store.start()
        except ConnectionLost:
            self.refused += 1
            return
        for number in steps:
            try:
                await store.multi(_SCRIPT[number])
            except (ConnectionLost, NoNode, NodeExists, MultiFailed):  # the latter for what an earlier refusal left out
                self.refused += 1
            else:
                self.told.append(number)
        if faulty is not None:
            plan, faulty.plan = faulty.plan, None
            await store.create("/well-again", ephemeral=True)  # without a restart
            faulty.plan = plan
        await store.close()


async def check(path: Path, told: list[int]) -> None:
    """Open it with a well disk: the result of what was acknowledged, with any of what was refused, each as a whole."""
    store = EmbeddedStore(EmbeddedDatabase(path, ManualClock()))
    await store.start()
    try:
        found = await _contents(store)
        await store.create("/again", b"well")
    finally:
        await store.close()
    if found not in _possible(told):
        raise Violation(f"acknowledged {told}, found {found}")
    again = EmbeddedStore(EmbeddedDatabase(path, ManualClock()))
    await again.start()
    try:
        if (await again.get("/again")).data != b"well":
            raise Violation("what was written after the fault is gone")
    finally:
        await again.close()


async def _contents(store: EmbeddedStore) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    folders = [""]
    while folders:
        folder = folders.pop()
        for name in await store.children(folder or "/"):
            path = f"{folder}/{name}"
            found[path] = (await store.get(path)).data
            folders.append(path)
    return found


def _possible(told: list[int]) -> list[dict[str, bytes]]:
    """What may be there: the told steps in order, with any choice of the others that the script allows."""
    states: list[dict[str, bytes]] = [{}]
    for number, operations in enumerate(_SCRIPT):
        after = [moved for state in states if (moved := _applied(state, operations)) is not None]
        if number in told:
            states = after
        else:
            states = [*states, *(state for state in after if state not in states)]
    return states


def _applied(state: dict[str, bytes], operations: tuple[Operation, ...]) -> dict[str, bytes] | None:
    """The whole of it, or None where the store would refuse it."""
    after = dict(state)
    for operation in operations:
        path = operation.path
        parent = path.rpartition("/")[0]
        if isinstance(operation, Create):
            if path in after or (parent and parent not in after):
                return None
            if not operation.ephemeral:
                after[path] = operation.data
        elif path not in after:
            return None
        elif isinstance(operation, SetData):
            after[path] = operation.data
        else:
            del after[path]
    return after


def count_statements() -> int:
    faulty = FaultyStatements()
    with _folder() as folder:
        asyncio.run(StoreLife(folder / "store.db", faulty).run())
    return faulty.count


def plans() -> Iterator[StorePlan]:
    for number in range(1, count_statements() + 1):
        for error in MESSAGES:
            yield StorePlan(number, error)
            yield StorePlan(number, error, lasts=True)


def try_plan(plan: StorePlan) -> None:
    """`Violation` or any other exception is a finding."""

    async def live(path: Path) -> None:
        life = StoreLife(path, FaultyStatements(plan))
        await life.run()
        await check(path, life.told)

    with _folder() as folder:
        asyncio.run(live(folder / "store.db"))


# -- below SQLite: real system calls that fail, and a file system without room


class CallPlan(NamedTuple):
    """Refuse the `number`-th system call of this name on the store's files."""

    call: str
    number: int
    error: str

    def __str__(self) -> str:
        return f"store-call:{self.call}:{self.number}:{self.error}"

    @classmethod
    def parse(cls, text: str) -> CallPlan:
        _, call, number, error = text.split(":")
        return cls(call, int(number), error)


def call_plans() -> Iterator[CallPlan]:
    """Empty where there is no strace, or it may not trace."""
    if shutil.which("strace") is None:
        return
    for call in SYSTEM_CALLS:
        for number in range(1, _count_calls(call) + 1):
            for error in ("EIO", "ENOSPC") if call in ("pwrite64", "openat", "ftruncate") else ("EIO",):
                yield CallPlan(call, number, error)


def _count_calls(call: str) -> int:
    with _folder() as folder:
        ended, traced = _traced(folder, ["-e", f"trace={call}"])
        return traced.count("\n") if ended == 0 else 0


def try_call_plan(plan: CallPlan) -> None:
    with _folder() as folder:
        injected = f"inject={plan.call}:error={plan.error}:when={plan.number}"
        ended, traced = _traced(folder, ["-e", f"trace={plan.call}", "-e", injected])
        if ended != 0:
            raise Violation(f"the process ended with {ended}: {traced[-300:]}")
        told = json.loads((folder / "told.json").read_text())
        asyncio.run(check(folder / "store.db", told))


def _traced(folder: Path, options: list[str]) -> tuple[int, str]:
    files = [str(folder / name) for name in ("store.db", "store.db-wal", "store.db-journal")]
    paths = [option for name in files for option in ("-P", name)]
    done = subprocess.run(
        [
            "strace",
            "-f",
            "-qq",
            *options,
            *paths,
            "-o",
            str(folder / "trace"),
            sys.executable,
            "-c",
            _CHILD,
            str(folder),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    trace = folder / "trace"
    return done.returncode, (trace.read_text() if trace.exists() else "") or done.stderr


_CHILD: Final = """
import asyncio, json, pathlib, sys
from penstock.testing.disk.store import StoreLife
folder = pathlib.Path(sys.argv[1])
life = StoreLife(folder / "store.db")
asyncio.run(life.run())
(folder / "told.json").write_text(json.dumps(life.told))
"""


def fill_small_disk(folder: Path) -> tuple[int, int]:
    """Write to a store on a file system that becomes full, make room, write again: (acknowledged, refused)."""

    async def live() -> tuple[int, int]:
        store = EmbeddedStore(EmbeddedDatabase(folder / "store.db", ManualClock()))
        await store.start()
        told: list[str] = []
        ballast = folder / "ballast"
        os.close(_fill(ballast))
        refused = 0
        for number in range(60):
            try:
                await store.create(f"/n{number}", bytes(3000))
                told.append(f"n{number}")
            except ConnectionLost:
                refused += 1
                if refused == 5:
                    ballast.unlink()
        await store.close()
        os.close(_fill(ballast))
        again = EmbeddedStore(EmbeddedDatabase(folder / "store.db", ManualClock()))
        await again.start()  # although there is no room
        found = await again.children("/")
        await again.close()
        missing = set(told) - set(found)
        if missing:
            raise Violation(f"acknowledged and gone: {sorted(missing)}")
        if "n59" not in told:
            raise Violation(f"there was room again, and the store did not go on: {told} {refused}")
        return len(told), refused

    return asyncio.run(live())


def _fill(ballast: Path) -> int:
    descriptor = os.open(ballast, os.O_WRONLY | os.O_CREAT)
    with contextlib.suppress(OSError):
        while True:
            os.write(descriptor, bytes(4096))
    return descriptor


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="store-search-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def small_disk(size: str = "6m") -> Iterator[Path | None]:
    """A real file system of that size; None where we may not mount one."""
    with _folder() as folder:
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
        if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
            yield None
            return
        try:
            yield folder
        finally:
            subprocess.run(["umount", "-l", str(folder)], check=False)
