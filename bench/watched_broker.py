"""`python -m bench.watched_broker …`: a broker that notes how long its event loop stood still (see `bench.stalls`)."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from pathlib import Path

import uvloop

from bench.stalls import FOLDER_VARIABLE, PERIOD_SECONDS, Note
from penstock.broker.__main__ import main


class Watch:
    def __init__(self, loop: asyncio.AbstractEventLoop, note: Note) -> None:
        self._loop = loop
        self._note = note
        self._schedule = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY)
        self._queued_seconds = self._queued()
        self._due = time.monotonic() + PERIOD_SECONDS
        loop.call_later(PERIOD_SECONDS, self._look)

    def _queued(self) -> float:
        """How long this thread could have run, but another one had the core."""
        return int(os.pread(self._schedule, 64, 0).split()[1]) / 1e9

    def _look(self) -> None:
        now, queued = time.monotonic(), self._queued()
        stood_still = now - self._due - (queued - self._queued_seconds)
        if stood_still > self._note.seconds:
            self._note.seconds = stood_still
        self._queued_seconds = queued
        self._due = now + PERIOD_SECONDS
        self._loop.call_later(PERIOD_SECONDS, self._look)


def watched_loop() -> asyncio.AbstractEventLoop:
    loop: asyncio.AbstractEventLoop = plain_loop()
    Watch(loop, Note(Path(os.environ[FOLDER_VARIABLE]) / str(os.getpid())))
    return loop


if __name__ == "__main__":
    plain_loop, uvloop.new_event_loop = uvloop.new_event_loop, watched_loop
    sys.exit(main())
