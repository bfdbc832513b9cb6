"""Opens batches in a process of its own: work per record on what a client sent must not hold the broker's GIL.

One at a time, so that any number of them costs the memory of one and half a core at most. The process starts with the
first batch that needs it.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from penstock.base.settings import LogConfig
from penstock.log.inspection_process import receive, send
from penstock.log.validation import Inspection
from penstock.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)

_TRIES: Final = 2  # somebody may have ended the process since its last job
_STOP_SECONDS: Final = 5


class Inspector:
    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="inspector")
        self._process: subprocess.Popen[bytes] | None = None

    def submit(self, batch: bytes, config: LogConfig, now_ms: int, name: str) -> Future[Inspection]:
        return self._thread.submit(self._ask, batch, config, now_ms, name)

    def close(self) -> None:
        """May be called from the loop: an idle process ends at once."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._end()

    def _ask(self, batch: bytes, config: LogConfig, now_ms: int, name: str) -> Inspection:
        problem: Exception | None = None
        for _ in range(_TRIES):
            try:
                process = self._process or self._start()
                assert process.stdin is not None and process.stdout is not None
                send(process.stdin, (batch, config._asdict(), now_ms, name))
                found: Inspection = receive(process.stdout)
                return found if found.batch else found._replace(batch=batch)
            except (OSError, EOFError, ValueError) as error:
                problem = error
                self._end()
        logger.error("a batch for %s cannot be opened: %s", name, problem or "the process ended")
        return Inspection(ErrorCode.UNKNOWN_SERVER_ERROR, batch, detail=f"the batch cannot be opened: {problem}")

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "penstock.log.inspection_process"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()  # it has nothing to lose
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    logger.debug("the inspection process was gone already")
        process.wait(_STOP_SECONDS)
