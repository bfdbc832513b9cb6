"""Processes that search: so many of one user and so many in all, kept warm for a while, ended with the console."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from penstock.operate.errors import ExitCode, UserError

MOST_OF_ONE_USER = 2
MOST = max(2, os.cpu_count() or 1)
IDLE_SECONDS = 120.0
STEP_SECONDS = 0.1
STOP_SECONDS = 5.0
WAIT_SECONDS = 60.0


class _Process:
    """One process of `penstock.console.search.process`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "penstock.console.search.process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={name: value for name, value in os.environ.items() if name != "PENSTOCK_CONSOLE_TOKEN"},
        )
        self._rest = b""
        self.idle_since = time.monotonic()

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def send(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # its end is told where its answer is waited for
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()

    def hear(self) -> dict[str, Any] | None:
        """The next line, or None when there is none for a moment."""
        assert self._process.stdout is not None
        while b"\n" not in self._rest:
            if not select.select([self._process.stdout], [], [], STEP_SECONDS)[0]:
                return None
            read = os.read(self._process.stdout.fileno(), 1 << 20)
            if not read:
                raise UserError(f"the process of this search ended with {self._process.wait(5)}", "search again")
            self._rest += read
        heard, _, self._rest = self._rest.partition(b"\n")
        answer: dict[str, Any] = json.loads(heard)
        return answer

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()


class Pool:
    def __init__(self, most: int = MOST, most_of_one_user: int = MOST_OF_ONE_USER) -> None:
        self._most, self._most_of_one_user = most, most_of_one_user
        self._changed = threading.Condition()
        self._of_user: Counter[str] = Counter()
        self._running = 0
        self._idle: list[_Process] = []
        self._sweeper: threading.Timer | None = None

    def ask(
        self, user: str, question: dict[str, Any], stop: threading.Event, on_wait: Callable[[], None] = lambda: None
    ) -> Iterator[dict[str, Any]]:
        """Answers as they come; who has too many searches running is told so instead."""
        with self._changed:
            if self._of_user[user] >= self._most_of_one_user:
                hint = "wait for one to end, or stop it"
                many = self._most_of_one_user
                raise UserError(f"{many} searches of {user} are running already", hint, ExitCode.REFUSED)
            self._of_user[user] += 1
        try:
            yield from self._answers(question, stop, on_wait)
        finally:
            with self._changed:
                self._of_user[user] -= 1

    def _answers(
        self, question: dict[str, Any], stop: threading.Event, on_wait: Callable[[], None]
    ) -> Iterator[dict[str, Any]]:
        process = self._take(stop, on_wait)
        if process is None:
            return
        is_done = False
        try:
            process.send(json.dumps(question))
            told_at: float | None = None
            while True:
                if stop.is_set() and told_at is None:
                    process.send("stop")
                    told_at = time.monotonic()
                heard = process.hear()
                if heard is None:
                    if told_at is not None and time.monotonic() - told_at > STOP_SECONDS:
                        return
                    continue
                if "error" in heard:
                    is_done = True
                    raise UserError(heard["error"], heard["hint"], ExitCode(heard["code"]))
                if "done" in heard:
                    is_done = True
                    return
                yield heard
        finally:
            self._give_back(process, is_done)

    def _take(self, stop: threading.Event, on_wait: Callable[[], None]) -> _Process | None:
        deadline = time.monotonic() + WAIT_SECONDS
        with self._changed:
            while self._running >= self._most:
                on_wait()
                self._changed.wait(STEP_SECONDS)
                if stop.is_set():
                    return None
                if time.monotonic() > deadline:
                    hint = "try again in a moment"
                    raise UserError(f"{self._most} searches are running already", hint, ExitCode.REFUSED)
            self._running += 1
            while self._idle:
                process = self._idle.pop()
                if process.is_alive:
                    return process
                process.end()
        try:
            return _Process()
        except OSError as error:
            with self._changed:
                self._running -= 1
            raise UserError(f"no process can be started to search: {error.strerror}") from error

    def _give_back(self, process: _Process, is_done: bool) -> None:
        """One that was left in the middle of its answer is of no use any more."""
        if not is_done:
            process.end()
        with self._changed:
            self._running -= 1
            if is_done:
                process.idle_since = time.monotonic()
                self._idle.append(process)
                if self._sweeper is None:
                    self._sweep_later()
            self._changed.notify_all()

    def _sweep_later(self) -> None:
        self._sweeper = threading.Timer(IDLE_SECONDS, self._sweep)
        self._sweeper.daemon = True
        self._sweeper.start()

    def _sweep(self) -> None:
        with self._changed:
            old = [one for one in self._idle if time.monotonic() - one.idle_since >= IDLE_SECONDS * 0.9]
            self._idle = [one for one in self._idle if one not in old]
            self._sweeper = None
            if self._idle:
                self._sweep_later()
        for process in old:
            process.end()

    def close(self) -> None:
        with self._changed:
            idle, self._idle = self._idle, []
            if self._sweeper is not None:
                self._sweeper.cancel()
                self._sweeper = None
        for process in idle:
            process.end()


pool = Pool()
