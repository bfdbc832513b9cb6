"""Processes of this machine as /proc shows them: whose children they are, which session, what command."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Seen:
    pid: int
    parent: int
    session: int
    command: str


def all_processes() -> Iterator[Seen]:
    """Those that live; one that has ended and waits for its parent does not."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            after_name = (entry / "stat").read_text().rpartition(")")[2].split()
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if after_name[0] != "Z":
            yield Seen(int(entry.name), int(after_name[1]), int(after_name[3]), command)


def processes_of_session(session_id: int, parts_of_command: tuple[str, ...]) -> Iterator[int]:
    """Processes of one session whose command line holds one of the parts."""
    for seen in all_processes():
        if seen.session == session_id and any(part in seen.command for part in parts_of_command):
            yield seen.pid


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
