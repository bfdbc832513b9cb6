"""What Spark on one machine takes for its Python: asks the nursery for a process that has everything loaded already.

Run by its path with a bare interpreter, so it imports next to nothing: `python -I -S nursery_door.py SOCKET PYTHON …`.
Whatever the nursery is not for, or when there is none, the real interpreter does.
"""

from __future__ import annotations

import os
import socket
import sys

_SERVED = ("pyspark.daemon", "pyspark.sql.worker.", "pyspark.sql.streaming.")


def is_on_its_own(module: str) -> bool:
    """Runners of streaming sources live as long as Spark's connection to them: nothing needs to stand for them."""
    return module.startswith("pyspark.sql.streaming.python_streaming_source_runner")


def main(place: str, python: str, arguments: list[str]) -> int:
    # Spark starts its daemons and the runners of streaming sources as modules; all else is asked of Python itself.
    if len(arguments) < 2 or arguments[0] != "-m" or not arguments[1].startswith(_SERVED):
        os.execv(python, [python, *arguments])
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        door.connect(place)
    except OSError:
        os.execv(python, [python, *arguments])
    variables = "\0".join(f"{name}={value}" for name, value in os.environ.items())
    lines = [os.getcwd(), "\0".join(arguments[1:]), variables]  # noqa: PTH109 - a bare interpreter starts in no time
    request = "\1".join(lines).encode("utf-8", "surrogateescape")
    socket.send_fds(door, [len(request).to_bytes(4, "big")], [0, 1, 2])
    door.sendall(request)
    # Open as long as the process in the nursery lives, and that one is ended when we are; unless it is on its own.
    code = door.recv(4)
    return int.from_bytes(code, "big") if code else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
