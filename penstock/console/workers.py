"""Processes that hold Spark for the console: asked one question at a time, ended when nobody asks any more."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from typing import Any

from penstock.operate.errors import ExitCode, UserError, usage_error

IDLE_SECONDS = 600.0
STEP_SECONDS = 0.2


class Cancelled(UserError):
    """Whoever asked does not want to know any more."""

    def __init__(self) -> None:
        super().__init__("cancelled", code=ExitCode.REFUSED)


class Worker:
    """One process of `penstock.pipelines.workbench`, started with the first question."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._idle: threading.Timer | None = None

    def ask(
        self, question: Mapping[str, Any], seconds: float, cancelled: threading.Event | None = None
    ) -> dict[str, Any]:
        """The answer. One question at a time: who comes while another is answered is told so."""
        if not self._lock.acquire(timeout=min(seconds, 2.0)):
            raise UserError(f"{self._name} is busy with another question", "try again in a moment", ExitCode.REFUSED)
        try:
            return self._answer(question, time.monotonic() + seconds, seconds, cancelled or threading.Event())
        finally:
            self._watch_idle()
            self._lock.release()

    def _answer(
        self, question: Mapping[str, Any], deadline: float, seconds: float, cancelled: threading.Event
    ) -> dict[str, Any]:
        process = self._running()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(question) + "\n")
            process.stdin.flush()
            while not select.select([process.stdout], [], [], STEP_SECONDS)[0]:
                if cancelled.is_set():
                    raise Cancelled
                if time.monotonic() > deadline:
                    raise UserError(f"no answer within {seconds:.0f} s", "ask for less", ExitCode.REFUSED)
            line = process.stdout.readline()
            if not line:
                raise UserError(f"the process of {self._name} ended with {process.wait(5)}", "ask again")
        except (UserError, OSError):
            self._end()
            raise
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            place = answer.get("place") or ""
            raise usage_error(f"{place}: {answer['error']}" if place else answer["error"])
        return answer

    def _running(self) -> subprocess.Popen[str]:
        if self._idle is not None:
            self._idle.cancel()
        if self._process is None or self._process.poll() is not None:
            self._end()
            self._folder = tempfile.TemporaryDirectory(prefix="penstock-workbench-")
            self._process = subprocess.Popen(
                [sys.executable, "-m", "penstock.pipelines.workbench"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                cwd=self._folder.name,
                start_new_session=True,  # so that Java ends with it
                env={name: value for name, value in os.environ.items() if name != "PENSTOCK_CONSOLE_TOKEN"},
            )
        return self._process

    def _watch_idle(self) -> None:
        self._idle = threading.Timer(IDLE_SECONDS, self.close)
        self._idle.daemon = True
        self._idle.start()

    def close(self) -> None:
        with self._lock:
            if self._idle is not None:
                self._idle.cancel()
            self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()
        folder, self._folder = self._folder, None
        if folder is not None:
            folder.cleanup()


checker = Worker("the check of pipelines")
"""Answers at once: it never starts Spark."""
spark = Worker("Spark")
"""Dry runs and SQL, one at a time."""


def close() -> None:
    checker.close()
    spark.close()
