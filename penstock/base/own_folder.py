"""Folders under the system's temporary one that only we write to: what lies in them is run later."""

from __future__ import annotations

import os
import stat
import tempfile
from functools import cache
from pathlib import Path


@cache
def own_folder(name: str, temporary: Path | None = None) -> Path:
    """`penstock-NAME-UID`, kept between runs. Anybody may have made a folder of that name before us, and could put
    programs into it: then this process gets a fresh one instead."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    parent = Path(tempfile.gettempdir()) if temporary is None else temporary
    folder = parent / f"penstock-{name}-{user}"
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        if not _is_ours(folder, user):
            return Path(tempfile.mkdtemp(prefix=f"penstock-{name}-", dir=parent))
    return folder


def _is_ours(folder: Path, user: int) -> bool:
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != user:
        return False
    if found.st_mode & 0o022:  # others could write into it until now
        return False
    if found.st_mode & 0o077:
        folder.chmod(0o700)
    return True
