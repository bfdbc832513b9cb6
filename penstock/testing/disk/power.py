"""Every crash point: a disk that knows what is durable, and the folders that a power loss may leave behind.

What was synced is there. Of the rest each file keeps what it had when it was synced last, plus any part of what was
written since: all of it, nothing, some of the writes (the others read as zeros), or the last one torn. Each folder
keeps its names as they were when it was synced last, plus a first part of what happened to them since.
"""

from __future__ import annotations

import os
import random
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from penstock.log import disk

_RANDOM_PART: Final = re.compile(r"\.[0-9a-f]{32}(?=-)")
_REAL: Final = {name: getattr(os, name) for name in disk.CALLS}


class PowerLost(BaseException):
    """Here the machine stops. Not an Exception: nobody in the log may catch it."""


class _File:
    """An inode: what is durable of it, and what happened since."""

    def __init__(self) -> None:
        self.durable = b""
        self.pending: list[tuple[int, bytes | None]] = []  # (position, data), or (size, None) for a cut

    def sync(self) -> None:
        self.durable = _applied(self.durable, self.pending)
        self.pending = []

    def after_crash(self, dice: random.Random) -> bytes:
        pending = self.pending
        kind = dice.randrange(4)
        if kind == 0:
            pending = []
        elif kind == 1:
            pending = pending[: dice.randint(0, len(pending))]
        elif kind == 2:
            pending = [change for change in pending if change[1] is None or dice.random() < 0.6]
        if pending and dice.random() < 0.5:
            position, data = pending[-1]
            if data:
                pending = [*pending[:-1], (position, data[: dice.randint(0, len(data))])]
        return _applied(self.durable, pending)


def _applied(content: bytes, changes: list[tuple[int, bytes | None]]) -> bytes:
    result = bytearray(content)
    for position, data in changes:
        if data is None:
            del result[position:]
            result.extend(bytes(position - len(result)))
        else:
            result.extend(bytes(max(position + len(data) - len(result), 0)))
            result[position : position + len(data)] = data
    return bytes(result)


_Change = tuple[bool | str, str, _File | None]
"""In a folder: (added or dropped, path, file), or (from, to, None) for a rename."""


class PowerDisk:
    """Hand in its `calls`; before the one with the number `lose_before` (from 0) of those that change something the
    power is gone."""

    def __init__(self, lose_before: int = -1) -> None:
        self.count = 0
        self._lose_before = lose_before
        self._names: dict[str, _File | None] = {}  # path → file, None for a folder
        self._durable: dict[str, _File | None] = {}
        self._changes: dict[str, list[_Change]] = {}
        self._opened: dict[int, str | _File] = {}  # descriptor → folder or file
        lock = threading.Lock()  # a load has threads of its own
        names = ("open", "pwrite", "pwritev", "fsync", "ftruncate", "truncate", "replace", "unlink", "mkdir")
        self.calls: dict[str, Callable[..., Any]] = {name: _one_by_one(lock, getattr(self, name)) for name in names}

    def _tick(self) -> None:
        if self.count == self._lose_before:
            raise PowerLost
        self.count += 1

    def _note(self, added: bool, path: str, file: _File | None) -> None:
        self._changes.setdefault(_parent(path), []).append((added, path, file))
        if added:
            self._names[path] = file
        else:
            self._names.pop(path, None)

    def _file(self, fd: int) -> _File:
        file = self._opened[fd]
        assert isinstance(file, _File)
        return file

    def adopt(self, root: Path) -> None:
        """What lies there has been there for long."""
        for path in root.rglob("*"):
            name = os.path.realpath(path)
            file = None
            if path.is_file():
                file = _File()
                file.durable = path.read_bytes()
            self._names[name] = self._durable[name] = file

    def forget(self, root: Path) -> None:
        """Nothing lies there any more."""
        prefix = os.path.realpath(root) + "/"
        for known in (self._names, self._durable, self._changes):
            for name in [name for name in known if name.startswith(prefix) or name + "/" == prefix]:
                del known[name]

    # -- the calls

    def open(self, path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        name = os.path.realpath(path)
        if flags & os.O_CREAT and not Path(name).exists():
            self._tick()
            self._note(True, name, _File())
        elif flags & os.O_TRUNC:
            self._tick()
            self._known(name).pending.append((0, None))
        fd: int = _REAL["open"](path, flags, *arguments, **options)
        self._opened[fd] = name if Path(name).is_dir() else self._known(name)
        return fd

    def _known(self, name: str) -> _File:
        """Files that were made past this disk (locks) are durable at once: nobody relies on them."""
        file = self._names.get(name)
        if file is None:
            file = self._names[name] = self._durable[name] = _File()
            file.durable = Path(name).read_bytes()
        return file

    def pwrite(self, fd: int, data: Any, position: int) -> int:
        self._tick()
        self._file(fd).pending.append((position, bytes(data)))
        return int(_REAL["pwrite"](fd, data, position))

    def pwritev(self, fd: int, buffers: Any, position: int) -> int:
        return self.pwrite(fd, b"".join(bytes(part) for part in buffers), position)

    def ftruncate(self, fd: int, size: int) -> None:
        self._tick()
        self._file(fd).pending.append((size, None))
        _REAL["ftruncate"](fd, size)

    def truncate(self, path: Any, size: int) -> None:
        self._tick()
        self._known(os.path.realpath(path)).pending.append((size, None))
        _REAL["truncate"](path, size)

    def fsync(self, fd: int) -> None:
        self._tick()
        opened = self._opened[fd]
        if isinstance(opened, _File):
            opened.sync()
        else:
            _apply(self._durable, self._changes.pop(opened, []))

    def replace(self, source: Any, target: Any) -> None:
        self._tick()
        old, new = os.path.realpath(source), os.path.realpath(target)
        _REAL["replace"](source, target)
        moved = [(name, file) for name, file in self._names.items() if name == old or name.startswith(old + "/")]
        self._changes.setdefault(_parent(new), []).append((old, new, None))
        for name, one in moved:
            del self._names[name]
            self._names[new + name[len(old) :]] = one
        if old in self._changes:  # a folder: what happened in it goes with it
            self._changes[new] = [(added, new + name[len(old) :], one) for added, name, one in self._changes.pop(old)]

    def unlink(self, path: Any) -> None:
        self._tick()
        _REAL["unlink"](path)
        self._note(False, os.path.realpath(path), None)

    def mkdir(self, path: Any, *arguments: Any) -> None:
        self._tick()
        _REAL["mkdir"](path, *arguments)
        self._note(True, os.path.realpath(path), None)

    # -- what is left

    def leave(self, root: Path, target: Path, dice: random.Random) -> None:
        """Write to `target` what of `root` a power loss at this moment may leave."""
        names = dict(self._durable)
        for folder in sorted(self._changes, key=_without_chance):
            changes = self._changes[folder]
            _apply(names, changes[: dice.randint(0, len(changes))])
        prefix = os.path.realpath(root) + "/"
        target.mkdir(parents=True)
        for name in sorted(names, key=_without_chance):
            if not name.startswith(prefix) or not self._is_reachable(name, prefix, names):
                continue
            place = target / name[len(prefix) :]
            file = names[name]
            if file is None:
                place.mkdir(exist_ok=True)
            else:
                place.write_bytes(file.after_crash(dice))

    def _is_reachable(self, name: str, prefix: str, names: dict[str, _File | None]) -> bool:
        folder = _parent(name)
        return folder + "/" == prefix or (folder in names and self._is_reachable(folder, prefix, names))


def _one_by_one(lock: threading.Lock, call: Callable[..., Any]) -> Callable[..., Any]:
    def locked(*arguments: Any, **options: Any) -> Any:
        with lock:
            return call(*arguments, **options)

    return locked


def _without_chance(name: str) -> str:
    """Names in an order that does not depend on the random part which deleted folders get."""
    return _RANDOM_PART.sub("", name)


def _parent(name: str) -> str:
    return name.rpartition("/")[0]


def _apply(names: dict[str, _File | None], changes: list[_Change]) -> None:
    for added, name, file in changes:
        if isinstance(added, str):
            moved = [known for known in names if known == added or known.startswith(added + "/")]
            for known in moved:
                names[name + known[len(added) :]] = names.pop(known)
        elif added:
            names[name] = file
        else:
            gone = [known for known in names if known == name or known.startswith(name + "/")]
            for known in gone:
                del names[known]
