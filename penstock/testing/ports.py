"""Ports for servers of tests and proofs that nobody else will be given meanwhile.

A port of the kernel's own choice (bind to 0) is free only at that moment: while the server that was promised it starts,
or is dead between a kill and a restart, any outgoing connection or another test may take it. These come from below the
range of outgoing connections, and a counter that all processes of this user share goes through them in order, so that
a port returns only after thousands of others.
"""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from pathlib import Path
from typing import Final

FIRST_PORT: Final = 12_000
END_PORT: Final = 32_000
"""Linux gives outgoing connections 32768 and above; the brokers' usual ports lie below the first one."""


def free_port() -> int:
    return free_ports(1)


def free_ports(count: int) -> int:
    """The first of so many free ports in a row."""
    counter = Path(tempfile.gettempdir()) / f"penstock-ports-{os.getuid()}"
    with os.fdopen(os.open(counter, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        text = file.read().strip()
        candidate = int(text) if text.isdigit() else FIRST_PORT
        for _ in range(END_PORT - FIRST_PORT):
            if not FIRST_PORT <= candidate <= END_PORT - count:
                candidate = FIRST_PORT
            if all(_is_free(port) for port in range(candidate, candidate + count)):
                break
            candidate += 1
        else:
            raise RuntimeError(f"no {count} free ports in a row between {FIRST_PORT} and {END_PORT}")
        file.seek(0)
        file.truncate()
        file.write(str(candidate + count))
    return candidate


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do: a port in TIME_WAIT can be listened on.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
