"""A driver process under a runner's eye: started, restarted with back-off, stopped; its output relayed."""

from __future__ import annotations

import collections
import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from penstock.pipelines.control import driver
from penstock.pipelines.control.store import Applied
from penstock.pipelines.secrets import OF_RUNNERS, Allowed

FIRST_BACKOFF_SECONDS: Final = 1.0
LONGEST_BACKOFF_SECONDS: Final = 60.0
HEALTHY_SECONDS: Final = 60.0
STOP_SECONDS: Final = 25.0
MAX_LOG_BYTES: Final = 10 * 1024 * 1024
_LINES_PER_SECOND: Final = 20


class DriverProcess:
    """Call `tick` often, from one thread."""

    def __init__(
        self,
        applied: Applied,
        properties: Mapping[str, str],
        state_dir: str,
        log_file: Path,
        on_event: Callable[[dict[str, Any]], None],
        on_log: Callable[[str], None],
        allowed: Allowed = OF_RUNNERS,
    ) -> None:
        self.applied = applied
        self._properties, self._state_dir, self._log_file = dict(properties), state_dir, log_file
        self._on_event, self._on_log = on_event, on_log
        self._allowed_secrets = allowed
        self._process: subprocess.Popen[str] | None = None
        self._started_at = 0.0
        self._not_before = 0.0
        self._backoff = FIRST_BACKOFF_SECONDS
        self._stop_deadline: float | None = None
        self._stopping = False
        self.finished = False
        self.restarts = 0

    @property
    def is_over(self) -> bool:
        """Stopped or finished, and nothing runs any more."""
        return (self._stopping or self.finished) and self._process is None

    def tick(self) -> None:
        now = time.monotonic()
        if self._process is None:
            if not self._stopping and not self.finished and now >= self._not_before:
                self._start(now)
            return
        code = self._process.poll()
        if code is not None:
            self._ended(code, now)
        elif self._stop_deadline is not None and now > self._stop_deadline:
            self._process.kill()

    def _start(self, now: float) -> None:
        command = [sys.executable, "-m", "penstock.pipelines.control.driver", "--state-dir", self._state_dir]
        command += ["--env-prefix", self._allowed_secrets.env_prefix]
        if self._allowed_secrets.folder is not None:
            command += ["--secrets-dir", self._allowed_secrets.folder]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._started_at = now
        assert self._process.stdin is not None
        given = {"applied": asdict(self.applied), "properties": self._properties}
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(given) + "\n")
            self._process.stdin.flush()
        for target, stream in ((self._read_events, self._process.stdout), (self._read_log, self._process.stderr)):
            threading.Thread(target=target, args=(stream,), daemon=True).start()

    def _ended(self, code: int, now: float) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.close()
        self._process = None
        if self._stopping:
            return
        if code == driver.FINISHED:
            self.finished = True
            return
        if now - self._started_at > HEALTHY_SECONDS:
            self._backoff = FIRST_BACKOFF_SECONDS
        if code in (driver.REFUSED, driver.FENCED):  # trying again at once would end the same way
            self._backoff = LONGEST_BACKOFF_SECONDS
        self.restarts += 1
        self._not_before = now + self._backoff
        self._on_log(f"the driver ended with code {code}; it starts again in {self._backoff:.0f} s")
        self._backoff = min(self._backoff * 2, LONGEST_BACKOFF_SECONDS)

    def ask_to_stop(self) -> None:
        if self._stopping:
            return
        self._stopping = True
        self._stop_deadline = time.monotonic() + STOP_SECONDS
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()

    def stop_now(self) -> None:
        """Stop and wait, within bounds: when this returns no process of ours runs the pipeline."""
        self.ask_to_stop()
        if self._process is not None:
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(10)
            self._process = None

    def _read_events(self, stream: Any) -> None:
        for line in stream:
            try:
                self._on_event(json.loads(line))
            except ValueError:  # something that user code printed
                self._log(line)

    def _read_log(self, stream: Any) -> None:
        for line in stream:
            self._log(line)

    def _log(self, line: str) -> None:
        self._log_file.parent.mkdir(parents=True, exist_ok=True)
        if self._log_file.exists() and self._log_file.stat().st_size > MAX_LOG_BYTES:
            self._log_file.replace(self._log_file.with_suffix(".log.1"))
        with self._log_file.open("a", encoding="utf-8") as file:
            file.write(line)
        if self._allowed():
            self._on_log(line.rstrip())

    def _allowed(self) -> bool:
        """A stack trace may be published, a flood of them not."""
        recent = self.__dict__.setdefault("_recent", collections.deque(maxlen=_LINES_PER_SECOND * 5))
        now = time.monotonic()
        if len(recent) == recent.maxlen and now - recent[0] < 5.0:
            return False
        recent.append(now)
        return True
