"""The disk, as the log sees it: every call by which its files are opened, read, changed and made durable.

Plain functions of `os`, looked up here at each call, which costs what looking them up there would. Handing in others
with `handed_in` is how the searches make single calls fail, and how they know what a power loss may take away.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

open = os.open
read = os.read
pread = os.pread
pwrite = os.pwrite
pwritev = os.pwritev
fsync = os.fsync
ftruncate = os.ftruncate
truncate = os.truncate
replace = os.replace
unlink = os.unlink
mkdir = os.mkdir
listdir = os.listdir

CALLS: Final = (
    "open",
    "read",
    "pread",
    "pwrite",
    "pwritev",
    "fsync",
    "ftruncate",
    "truncate",
    "replace",
    "unlink",
    "mkdir",
    "listdir",
)


def discard(path: Path | str) -> None:
    """Unlink what may be gone already."""
    with contextlib.suppress(FileNotFoundError):
        unlink(path)


@contextlib.contextmanager
def handed_in(calls: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
    """Use these instead, for the whole process, until the end of the `with` block."""
    here = globals()
    before = {name: here[name] for name in calls}
    here.update(calls)
    try:
        yield
    finally:
        here.update(before)
