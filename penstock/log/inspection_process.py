"""The process that opens batches for a broker: `python -m penstock.log.inspection_process`. No network, no files.

Jobs come by standard input and answers go to standard output, each a length and a pickle between two processes of one
program. It ends when its broker does, which is the other end of both.
"""

from __future__ import annotations

import os
import pickle
import sys
from struct import Struct
from typing import IO, Any, Final

from penstock.base.settings import LogConfig
from penstock.log.validation import Inspection, inspect

LENGTH: Final = Struct(">I")


def send(pipe: IO[bytes], message: Any) -> None:
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    pipe.write(LENGTH.pack(len(data)) + data)
    pipe.flush()


def receive(pipe: IO[bytes]) -> Any:
    """The next message. EOFError if the other side is gone."""
    front = pipe.read(LENGTH.size)
    data = pipe.read(LENGTH.unpack(front)[0]) if len(front) == LENGTH.size else b""
    if not data:
        raise EOFError
    return pickle.loads(data)


def inspected(batch: bytes, config: dict[str, Any], now_ms: int, name: str) -> Inspection:
    """A batch that stays as it is does not travel back."""
    found = inspect(batch, LogConfig(**config), now_ms, name)
    return found._replace(batch=b"" if found.batch is batch else bytes(found.batch))


def main() -> int:
    os.nice(5)
    jobs, answers = sys.stdin.buffer, sys.stdout.buffer
    try:
        while True:
            send(answers, inspected(*receive(jobs)))
    except (EOFError, BrokenPipeError):
        os._exit(0)  # nobody is left who could be told anything


if __name__ == "__main__":
    sys.exit(main())
