"""Runs several parts of Penstock as child processes: starts them in order, restarts what dies, stops all at the end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.base import supervised

FIRST_BACKOFF_SECONDS = 0.5
LONGEST_BACKOFF_SECONDS = 30.0
HEALTHY_SECONDS = 60.0  # a part that ran so long starts again without back-off
STOP_SECONDS = 30.0


@dataclass
class Part:
    """One child: its command line, and the text on its standard output that says it is ready (None: at once)."""

    name: str
    command: list[str]
    ready_prefix: str | None = None
    required: bool = True  # without it the rest makes no sense: its failure to start ends all
    environment: dict[str, str] | None = None
    process: asyncio.subprocess.Process | None = field(default=None, init=False)
    ready_line: str = field(default="", init=False)
    ready: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    tried: asyncio.Event = field(default_factory=asyncio.Event, init=False)  # it has ended at least once


class Supervisor:
    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._parts: list[Part] = []
        self._watchers: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()
        self._failed: str | None = None

    async def run(self, parts: list[Part], when_ready: Callable[[], None]) -> int:
        """Start the parts one after the other; until told to stop (0) or a required part cannot start (1)."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # the last one: our terminal is gone
            loop.add_signal_handler(number, self._on_signal)
        try:
            for part in parts:
                await self._start(part)
                if self._stopping.is_set():
                    break
            else:
                when_ready()
            await self._stopping.wait()
        finally:
            await self._stop()
        if self._failed:
            sys.stderr.write(f"penstock: {self._failed}\n")
        return 1 if self._failed else 0

    def _on_signal(self) -> None:
        if self._stopping.is_set():  # the second signal: at once
            for part in self._parts:
                if part.process is not None and part.process.returncode is None:
                    part.process.kill()
        self._stopping.set()

    async def _start(self, part: Part) -> None:
        self._parts.append(part)
        self._watchers.append(asyncio.create_task(self._watch(part)))
        # What is not required does not hold the others up: it has had its try, and is started again beside them.
        events = [part.ready, self._stopping] if part.required else [part.ready, self._stopping, part.tried]
        waiting = [asyncio.create_task(event.wait()) for event in events]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()

    async def _watch(self, part: Part) -> None:
        backoff = FIRST_BACKOFF_SECONDS
        while not self._stopping.is_set():
            began = time.monotonic()
            part.process = await asyncio.create_subprocess_exec(
                *part.command,
                stdout=asyncio.subprocess.PIPE,
                stdin=asyncio.subprocess.PIPE,  # closes when we end, even by kill -9: parts do not outlive us
                env={**(part.environment or os.environ), **supervised.ENVIRONMENT},
                start_new_session=True,  # Ctrl-C goes to us alone: we stop the parts in order
            )
            if part.ready_prefix is None:
                part.ready.set()
            await self._relay(part)
            code = await part.process.wait()
            if self._stopping.is_set():
                return
            part.tried.set()
            if part.required and not part.ready.is_set():
                self._failed = f"the {part.name} did not start (exit code {code}); its message stands above"
                self._stopping.set()
                return
            part.ready.set()  # the others do not wait for one that they can do without
            if time.monotonic() - began > HEALTHY_SECONDS:
                backoff = FIRST_BACKOFF_SECONDS
            self._say(f"{part.name} ended with code {code}; starting it again in {backoff:.1f} s")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), backoff)
            backoff = min(backoff * 2, LONGEST_BACKOFF_SECONDS)

    async def _relay(self, part: Part) -> None:
        """Pass a part's standard output on, line by line, under its name."""
        assert part.process is not None and part.process.stdout is not None
        while True:
            try:
                line = await part.process.stdout.readline()
            except ValueError:  # a line longer than the reader's limit: skip it, the stream goes on
                continue
            if not line:
                return
            text = line.decode("utf-8", "replace").rstrip()
            if part.ready_prefix is not None and text.startswith(part.ready_prefix):
                part.ready_line = text
                part.ready.set()
            else:
                self._say(f"{part.name}: {text}")

    async def _stop(self) -> None:
        """Last started, first stopped: pipelines end before the broker that they write to."""
        for part, watcher in zip(reversed(self._parts), reversed(self._watchers), strict=True):
            process = part.process
            if process is not None and process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.terminate()
                try:
                    await asyncio.wait_for(process.wait(), STOP_SECONDS)
                except TimeoutError:
                    process.kill()
            watcher.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)
