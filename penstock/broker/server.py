"""A broker as a process: `run(settings)` serves in the foreground until it is told to stop.

The first SIGTERM or SIGINT stops gracefully, the second at once. One line `ready: <listeners>` on stdout says that
clients may come.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import uvloop

from penstock.base.logging import configure

if TYPE_CHECKING:
    from penstock.base.settings import Settings

logger = logging.getLogger(__name__)

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # from malloc.h
SETTLE_SECONDS = 1.5
LOOP_WAITS_SECONDS = 0.0005  # for a thread that parses; a request waits for the interpreter several times
# A collection holds up the loop for as long as it looks at what is new since the last one of its kind: half a
# microsecond for each object. The first two kinds are kept below five milliseconds that way, the third is rare.
COLLECTED_AFTER = (10_000, 2, 1600)
FEW_FILES = 4096
EXIT_OK = 0
EXIT_CANNOT_START = 1
EXIT_STOPPED_AT_ONCE = 3


def run(settings: Settings, on_ready: Callable[[Any], None] | None = None) -> int:
    """Serve until a signal comes; the exit code of the process."""
    configure(settings["penstock.log.level"], settings["penstock.log.format"])
    os.umask(0o077)  # data, indexes and the store are for their owner
    sys.setswitchinterval(LOOP_WAITS_SECONDS)
    gc.disable()  # nothing that a start makes is garbage; `settle` turns it on
    allow_many_files()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(settings, on_ready))


def allow_many_files() -> None:
    """As many descriptors as the system permits: each partition keeps one open, each connection another."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard != resource.RLIM_INFINITY and hard < FEW_FILES:
        logger.warning("only %d files and connections may be open: raise LimitNOFILE= of the unit, or ulimit -Hn", hard)


def settle() -> None:
    """A moment after the start: what exists now lives as long as the broker, collections need not look at it.

    Not even one: beside thousands of partitions it would hold up the loop for the sake of some hundred objects.
    """
    keep_freed_memory()
    gc.freeze()
    gc.set_threshold(*COLLECTED_AFTER)
    gc.enable()


def keep_freed_memory() -> None:
    """Tell glibc not to give every large buffer back to the kernel at once.

    A batch of 100 KB is a buffer that comes and goes; without this a third of the time of such produces went into
    clearing the pages that the kernel had just taken back.
    """
    try:
        import ctypes

        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, 32 * 1024 * 1024)
        libc.mallopt(_M_TRIM_THRESHOLD, 64 * 1024 * 1024)
    except (ImportError, OSError, AttributeError):
        logger.debug("no glibc: its defaults stay")


async def _serve(settings: Settings, on_ready: Callable[[Any], None] | None) -> int:
    from penstock.broker.broker import Broker

    loop = asyncio.get_running_loop()
    stop_asked = asyncio.Event()

    def on_signal(name: str) -> None:
        if stop_asked.is_set():
            logger.warning("second signal=%s: stopping at once, the next start recovers", name)
            os._exit(EXIT_STOPPED_AT_ONCE)
        logger.info("signal=%s: stopping gracefully, a second one stops at once", name)
        stop_asked.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number.name)

    broker = Broker(settings)
    starting = asyncio.ensure_future(broker.start())
    stopping = asyncio.ensure_future(stop_asked.wait())
    try:
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            return EXIT_OK
        try:
            starting.result()
        except Exception as error:
            logger.debug("start failed", exc_info=True)
            print(f"penstock: cannot start: {error}", file=sys.stderr, flush=True)
            return EXIT_CANNOT_START
        print("ready: " + ", ".join(broker.bound_listeners), flush=True)
        loop.call_later(SETTLE_SECONDS, settle)
        if on_ready is not None:
            on_ready(broker)
        await stop_asked.wait()
        await broker.stop()
        return EXIT_OK
    finally:
        stopping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await stopping
