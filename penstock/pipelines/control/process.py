"""The process of a driver as its runner sees it: started, told what to run, listened to, ended."""

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

from penstock.pipelines.control.hosted import ENDED, LINE, STORY
from penstock.pipelines.control.store import Applied
from penstock.pipelines.secrets import Allowed, redacted

STOP_SECONDS: Final = 25.0
MAX_LOG_BYTES: Final = 10 * 1024 * 1024
_LINES_PER_SECOND: Final = 20
_MOST_STORIES: Final = 100
_LONGEST_LINE: Final = 16_384  # characters: a plan or a table that somebody prints can be megabytes


class DriverProcess:
    """`on_ended(pipeline, generation, code)` comes from a thread of its own, as do events and lines."""

    def __init__(
        self,
        state_dir: str,
        log_file: Path,
        allowed: Allowed,
        memory: str,
        on_event: Callable[[dict[str, Any]], None],
        on_ended: Callable[[str, int, int], None],
        on_line: Callable[[str | None, str], None],
    ) -> None:
        self._log_file = log_file
        self._on_event, self._on_ended, self._on_line = on_event, on_ended, on_line
        self._stories: set[str] = set()
        self._recent: collections.deque[float] = collections.deque(maxlen=_LINES_PER_SECOND * 5)
        command = [sys.executable, "-m", "penstock.pipelines.control.driver", "--state-dir", state_dir]
        command += ["--memory", memory, "--env-prefix", allowed.env_prefix]
        if allowed.folder is not None:
            command += ["--secrets-dir", allowed.folder]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, errors="replace", start_new_session=True
        )
        self._readers = [
            threading.Thread(target=target, args=(stream,), daemon=True)
            for target, stream in ((self._read_told, self._process.stdout), (self._read_log, self._process.stderr))
        ]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def code(self) -> int | None:
        """None while it runs. Once it is not, all that it told has been heard."""
        code = self._process.poll()
        if code is not None:
            self._readers[0].join(5)
            assert self._process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        return code

    def start(self, applied: Applied, properties: Mapping[str, str]) -> None:
        self._command({"do": "start", "applied": asdict(applied), "properties": dict(properties)})

    def stop(self, pipeline: str) -> None:
        self._command({"do": "stop", "pipeline": pipeline})

    def _command(self, command: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError, ValueError):  # it has just ended: that is seen soon enough
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()

    def ask_to_end(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> None:
        """End it and wait, within bounds: when this returns it runs no pipeline any more."""
        self.ask_to_end()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)

    # --- what it says ---

    def _read_told(self, stream: Any) -> None:
        for line in stream:
            try:
                told = json.loads(line)
            except ValueError:
                told = None
            if (
                not isinstance(told, dict) or not {"kind", "pipeline"} <= told.keys()
            ):  # something that user code printed
                self._log(None, line)
            elif told["kind"] == ENDED:
                self._on_ended(told["pipeline"], told["generation"], told["code"])
            elif told["kind"] == LINE:
                self._log(told["pipeline"], told["line"] + "\n")
            elif told["kind"] == STORY:
                self._keep_story(told["pipeline"], told["line"])
            else:
                self._on_event(told)

    def _keep_story(self, pipeline: str, story: str) -> None:
        """Once for each: a pipeline that is tried again and again fails with the same one."""
        known = "\n".join(line.strip() for line in story.splitlines() if line.lstrip().startswith(("at ", "Caused by")))
        if known not in self._stories and len(self._stories) < _MOST_STORIES:
            self._stories.add(known)
            self._write(f"{pipeline}: {story.rstrip()}\n")

    def _read_log(self, stream: Any) -> None:
        for line in stream:
            self._log(None, line)

    def _log(self, pipeline: str | None, line: str) -> None:
        """Whatever the driver's processes print, Spark's JVM and Python workers among them; no secret stays in it."""
        line = redacted(line)
        if len(line) > _LONGEST_LINE:
            line = f"{line[:_LONGEST_LINE]}… and {len(line) - _LONGEST_LINE} characters more\n"
        self._write(line)
        if pipeline is not None or self._allowed():
            self._on_line(pipeline, line.rstrip())

    def _write(self, text: str) -> None:
        self._log_file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self._log_file.exists() and self._log_file.stat().st_size > MAX_LOG_BYTES:
            self._log_file.replace(self._log_file.with_suffix(".log.1"))
        with self._log_file.open("a", encoding="utf-8") as file:
            file.write(text)

    def _allowed(self) -> bool:
        """A stack trace may be published, a flood of them not."""
        now = time.monotonic()
        if len(self._recent) == self._recent.maxlen and now - self._recent[0] < 5.0:
            return False
        self._recent.append(now)
        return True
