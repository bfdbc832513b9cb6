"""A runner's drivers: which pipelines share one, and what becomes of them when it ends.

Pipelines with equal surroundings (master, Spark's settings, the client's properties) share a warm driver; one with
Python of its own gets its own, and so does one that took the shared driver down twice.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from penstock.pipelines.control import events, hosted
from penstock.pipelines.control.process import STOP_SECONDS, DriverProcess
from penstock.pipelines.control.store import Applied
from penstock.pipelines.secrets import OF_RUNNERS, Allowed, remember
from penstock.pipelines.storage import is_local

FIRST_BACKOFF_SECONDS: Final = 1.0
LONGEST_BACKOFF_SECONDS: Final = 60.0
HEALTHY_SECONDS: Final = 60.0
IDLE_SECONDS: Final = 600.0  # so long a shared driver without pipelines stays warm
MOST_CRASHES: Final = 2  # of a shared driver that a pipeline is suspected of, before it gets its own
MOST_FAILURES: Final = 3  # in a shared driver in which nobody has finished a batch since: it may be the driver's fault
SUSPECT_SECONDS: Final = 5.0  # the others are back at work before the one comes again that may have crashed them


def has_python(spec: Mapping[str, Any]) -> bool:
    """Whether code of the pipeline's own would run in its driver."""
    parts = [*spec.get("sources", {}).values(), *spec.get("sinks", {}).values()]
    operators = [str(view.get("operator", "")) for view in spec.get("views", {}).values()]
    return bool(
        spec.get("modules")
        or spec.get("settings", {}).get("requirements")
        or any(view.get("python") for view in spec.get("views", {}).values())
        or any(":" in name for name in [*operators, *(str(part.get("connector", "")) for part in parts)])
    )


def surroundings(spec: Mapping[str, Any]) -> str:
    """Equal for pipelines that may share a driver."""
    settings = spec.get("settings", {})
    wanted = [settings.get("master"), settings.get("spark", {}), settings.get("kafka", {})]
    return hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()[:8]


class Host:
    """A driver and who is in it."""

    def __init__(self, name: str, process: DriverProcess, *, is_shared: bool) -> None:
        self.name, self.process, self.is_shared = name, process, is_shared
        self.guests: dict[str, PipelineRun] = {}
        self.empty_since: float | None = None
        self.failures: list[str] = []  # which of its guests failed, one after the other, since one finished a batch


class Drivers:
    """Call `tick` often, from one thread."""

    def __init__(
        self,
        properties: Mapping[str, str],
        state_dir: str,
        on_event: Callable[[dict[str, Any]], None],
        on_log: Callable[[str, str], None],
        allowed: Allowed = OF_RUNNERS,
        on_crash: Callable[[dict[str, Any]], None] = lambda event: None,
    ) -> None:
        self._properties, self._state_dir, self._allowed = dict(properties), state_dir, allowed
        self._on_event, self.on_log, self._on_crash = on_event, on_log, on_crash
        self._hosts: dict[str, Host] = {}
        self._leaving: list[Host] = []

    def admit(self, run: PipelineRun) -> Host:
        """Into the driver of its surroundings, which is started if need be."""
        name = run.applied.name if run.is_alone else f"driver-{surroundings(run.applied.spec)}"
        host = self._hosts.get(name)
        if host is None:
            host = self._hosts[name] = self._new_host(name, is_shared=not run.is_alone)
        remember(run.applied.spec)
        host.guests[run.applied.name] = run
        host.empty_since = None
        host.process.start(run.applied, self._properties)
        return host

    def _new_host(self, name: str, *, is_shared: bool) -> Host:
        folder = self._state_dir if is_local(self._state_dir) else "."
        guests: dict[str, PipelineRun] = {}

        def heard(event: dict[str, Any]) -> None:
            run = guests.get(event["pipeline"])
            if run is not None and event["kind"] == events.PROGRESS:
                run.progressed()
                made.failures.clear()
            self._on_event(event)

        def ended(pipeline: str, generation: int, code: int) -> None:
            run = guests.get(pipeline)
            if run is not None and run.applied.generation == generation:
                run.code = code

        def line(pipeline: str | None, text: str) -> None:
            for guest in [pipeline] if pipeline is not None else list(guests):
                self.on_log(guest, text)

        memory = "2g" if is_shared else "1g"
        log_file = Path(folder) / "logs" / f"{name}.log"
        process = DriverProcess(self._state_dir, log_file, self._allowed, memory, heard, ended, line)
        made = Host(name, process, is_shared=is_shared)
        made.guests = guests
        return made

    def leave(self, host: Host, run: PipelineRun) -> None:
        host.guests.pop(run.applied.name, None)
        if not host.guests:
            host.empty_since = time.monotonic()

    def failed(self, host: Host, pipeline: str) -> None:
        """A pipeline failed in it. Where all fail and none succeeds, a new driver is worth a try.

        One that has not failed may be in the middle of a long batch, which others must not keep from ending.
        """
        host.failures.append(pipeline)
        if host.is_shared and len(host.failures) >= MOST_FAILURES and set(host.guests) <= set(host.failures):
            for guest in list(host.guests):
                self.on_log(guest, f"{MOST_FAILURES} failures and no finished batch: the driver is started anew")
            host.process.kill()

    def tick(self) -> None:
        now = time.monotonic()
        for host in list(self._hosts.values()):
            code = host.process.code()
            if code is not None:
                del self._hosts[host.name]
                self._crashed(host, code)
            elif host.empty_since is not None and (not host.is_shared or now - host.empty_since > IDLE_SECONDS):
                del self._hosts[host.name]
                host.process.ask_to_end()
                host.empty_since = now
                self._leaving.append(host)
        for host in self._leaving:
            if host.empty_since is not None and now - host.empty_since > STOP_SECONDS:
                host.process.kill()
        self._leaving = [host for host in self._leaving if host.process.code() is None]

    def _crashed(self, host: Host, code: int) -> None:
        """Suspected is who has not finished a batch since it came; all, if all have."""
        lost = [run for run in list(host.guests.values()) if run.code is None]
        suspects = [run for run in lost if not run.has_progressed] or lost
        for run in lost:
            run.lost_its_driver(code, is_suspect=run in suspects, is_shared=host.is_shared, others=len(lost) - 1)

    def tell_crash(self, applied: Applied, what: str) -> None:
        event = {"kind": events.STATE, "state": "failed", "error": what, "generation": applied.generation}
        self._on_crash({"pipeline": applied.name, **event})

    def end(self) -> None:
        """All of them, within bounds: when this returns no process of ours runs a pipeline."""
        hosts = [*self._hosts.values(), *self._leaving]
        for host in hosts:
            host.process.ask_to_end()
        for host in hosts:
            host.process.end()
        self._hosts, self._leaving = {}, []


class PipelineRun:
    """One generation of a pipeline under a runner's eye: started in a driver, again with back-off, stopped."""

    def __init__(self, applied: Applied, drivers: Drivers) -> None:
        self.applied = applied
        self._drivers = drivers
        self._host: Host | None = None
        self._started_at = 0.0
        self._not_before = 0.0
        self._backoff = FIRST_BACKOFF_SECONDS
        self._stop_deadline: float | None = None
        self._stopping = False
        self.finished = False
        self.restarts = 0
        self.crashes = 0  # of a shared driver, in a row, that it is suspected of
        self.has_progressed = False  # since it was started
        self.code: int | None = None  # how it ended, as its driver told

    @property
    def is_alone(self) -> bool:
        return has_python(self.applied.spec) or self.crashes >= MOST_CRASHES

    @property
    def is_over(self) -> bool:
        """Stopped or finished, and nothing runs any more."""
        return (self._stopping or self.finished) and self._host is None

    @property
    def driver_pid(self) -> int | None:
        return self._host.process.pid if self._host is not None else None

    def tick(self) -> None:
        now = time.monotonic()
        if self._host is None:
            if not self._stopping and not self.finished and now >= self._not_before:
                self.has_progressed, self.code, self._started_at = False, None, now
                self._host = self._drivers.admit(self)
        elif self.code is not None:
            if self.code == hosted.FAILED and not self._stopping:
                self._drivers.failed(self._host, self.applied.name)
            self._drivers.leave(self._host, self)
            self._host = None
            self._ended(self.code, now)
        elif self._stop_deadline is not None and now > self._stop_deadline:
            self._stop_deadline = None
            self._say("it does not stop: its driver is killed")
            self._host.process.kill()

    def progressed(self) -> None:
        """A batch is done: it was not what crashed the driver, unless it does so again before the next one."""
        self.has_progressed = True
        if self.crashes < MOST_CRASHES:
            self.crashes = 0

    def _ended(self, code: int, now: float) -> None:
        if self._stopping:
            return
        if code == hosted.FINISHED:
            self.finished = True
            return
        if now - self._started_at > HEALTHY_SECONDS:
            self._backoff = FIRST_BACKOFF_SECONDS
        if code in (hosted.REFUSED, hosted.FENCED):  # trying again at once would end the same way
            self._backoff = LONGEST_BACKOFF_SECONDS
        self._again(now, f"the pipeline ended with code {code}")

    def lost_its_driver(self, code: int, *, is_suspect: bool, is_shared: bool, others: int) -> None:
        self._host = None
        now = time.monotonic()
        if self._stopping:
            return
        if self.has_progressed:  # since its last start: that one ended well, so this is the first time again
            self._backoff = FIRST_BACKOFF_SECONDS
        what = f"the driver ended with code {code}"
        if is_suspect and is_shared:
            self.crashes += 1
            if self.crashes == MOST_CRASHES:
                what += f", {MOST_CRASHES} times with this pipeline in it: it gets a driver of its own"
            elif others:
                self._backoff = max(self._backoff, SUSPECT_SECONDS)
        if not is_suspect:
            self._backoff = FIRST_BACKOFF_SECONDS
            self._not_before = 0.0
            self.restarts += 1
            self._say(f"{what}; it starts again")
            return
        self._drivers.tell_crash(self.applied, what)
        self._again(now, what)

    def _again(self, now: float, what: str) -> None:
        self.restarts += 1
        self._not_before = now + self._backoff
        self._say(f"{what}; it starts again in {self._backoff:.0f} s")
        self._backoff = min(self._backoff * 2, LONGEST_BACKOFF_SECONDS)

    def _say(self, line: str) -> None:
        self._drivers.on_log(self.applied.name, line)

    def ask_to_stop(self) -> None:
        if self._stopping:
            return
        self._stopping = True
        self._stop_deadline = time.monotonic() + STOP_SECONDS
        if self._host is not None:
            self._host.process.stop(self.applied.name)

    def stop_now(self) -> None:
        """Stop and wait, within bounds: when this returns no process of ours runs the pipeline."""
        self.ask_to_stop()
        while self._host is not None:
            self._drivers.tick()
            self.tick()
            time.sleep(0.02)
