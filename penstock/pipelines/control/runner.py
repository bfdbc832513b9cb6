"""A runner: shares the applied pipelines with the other runners of a cluster, and keeps its own share running.

Runners are an ordinary consumer group on `__penstock_pipelines`: who is assigned a partition runs the pipelines whose
records lie in it. Before a partition is given away its drivers are stopped. Should a runner be cut off and not notice,
its drivers are fenced by those that take over (events.py), and by Spark's checkpoint.
"""

from __future__ import annotations

import hashlib
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from penstock.client.sync import SyncClient
from penstock.pipelines import ending
from penstock.pipelines.control import events
from penstock.pipelines.control.alerts import FIRING, AlertWatch, Messenger
from penstock.pipelines.control.drivers import Drivers, PipelineRun
from penstock.pipelines.control.metrics import RunnerMetrics
from penstock.pipelines.control.registration import NOBODY, REPEAT_SECONDS, Opened, Registration
from penstock.pipelines.control.store import TOPIC, Applied, PipelineStore, Unreadable, settings_for_librdkafka
from penstock.pipelines.execution import Place
from penstock.pipelines.schedule import Schedule
from penstock.pipelines.secrets import OF_RUNNERS, Allowed
from penstock.pipelines.spark.clients import client_for
from penstock.pipelines.spec import Alert
from penstock.pipelines.storage import is_local

GROUP: Final = "__penstock_runners"
POLL_SECONDS: Final = 0.2
NEIGHBOURS_SECONDS: Final = 30.0


class Runner:
    def __init__(
        self,
        properties: Mapping[str, str],
        state_dir: str,
        metrics: RunnerMetrics | None = None,
        allowed: Allowed = OF_RUNNERS,
        opened: Opened | None = None,
    ) -> None:
        self._properties = dict(properties)
        self._state_dir = state_dir
        self._metrics = metrics or RunnerMetrics()
        self._applied: dict[int, dict[str, Applied]] = {}  # partition → name → what is applied
        self._runs: dict[str, PipelineRun] = {}
        self._events: events.PlainWriter | None = None
        self._looked_at = -NEIGHBOURS_SECONDS
        self._warned = False
        self._deleted: dict[str, Applied] = {}
        self._watches: dict[str, AlertWatch] = {}
        self._drivers = Drivers(properties, state_dir, self._take_event, self._log, allowed, self._driver_crashed)
        self._messenger = Messenger(self._alert_to, self._log)
        self._due: dict[tuple[str, int], datetime] = {}  # (name, generation) → when its next run is due
        self._now: Callable[[], datetime] = lambda: datetime.now(UTC)
        self._began_ms = int(time.time() * 1000)
        name = f"{socket.gethostname()}:{os.getpid()}:{self._began_ms}"
        self._registration = Registration(name, allowed.env_prefix, allowed.folder, opened)
        self._registered_at = -REPEAT_SECONDS

    def run(self, should_stop: Callable[[], bool], when_ready: Callable[[], None]) -> None:
        from confluent_kafka import Consumer

        with SyncClient.from_properties(self._properties) as client:
            PipelineStore(client).ensure()
            events.ensure(client)
        self._events = events.PlainWriter(self._properties)
        consumer = Consumer(
            {
                **settings_for_librdkafka(self._properties),
                "group.id": GROUP,
                "client.id": self._client_id(),
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        consumer.subscribe([TOPIC], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)
        when_ready()
        try:
            while not should_stop():
                self._take_in(consumer)
                self._reconcile()
                self._watch()
                self._look_at_neighbours()
                self._register()
        finally:
            self._drivers.end()
            self._events.write(NOBODY, events.RUNNER, **replace(self._registration, ended=True).content())
            consumer.close()
            self._events.close()

    def _client_id(self) -> str:
        """Runners that share checkpoints have the same id."""
        where = self._state_dir if not is_local(self._state_dir) else f"{socket.gethostname()}:{self._state_dir}"
        return f"penstock-runner-{hashlib.sha256(where.encode()).hexdigest()[:12]}"

    # --- what is ours ---

    def _assigned(self, consumer: Any, partitions: list[Any]) -> None:
        for item in partitions:
            item.offset = 0  # the whole partition is the state
            self._applied[item.partition] = {}
        consumer.assign(partitions)

    def _revoked(self, consumer: Any, partitions: list[Any]) -> None:
        gone = {name for item in partitions for name in self._applied.pop(item.partition, {})}
        mine = [self._runs.pop(name) for name in gone if name in self._runs]
        for run in mine:
            run.ask_to_stop()
        for run in mine:
            run.stop_now()
        for name in gone:
            self._metrics.forget(name)

    def _take_in(self, consumer: Any) -> None:
        for message in consumer.consume(500, POLL_SECONDS):
            if message.error() or message.partition() not in self._applied:
                continue
            name = (message.key() or b"").decode("utf-8", "replace")
            if message.value() is None:
                known = self._applied[message.partition()].pop(name, None)
                # What was deleted before we came is the matter of whoever held it then.
                if known is not None and message.timestamp()[1] >= self._began_ms:
                    self._deleted[name] = known
            else:
                try:
                    self._applied[message.partition()][name] = Applied.from_json(message.value())
                except Unreadable as error:
                    self._log(
                        name, f"what was applied at {message.partition()}:{message.offset()} is left out: {error}"
                    )
                    continue
                self._deleted.pop(name, None)

    # --- keep it running ---

    def _reconcile(self) -> None:
        wanted = {
            name: applied
            for partition in self._applied.values()
            for name, applied in partition.items()
            if applied.desired == "running"
        }
        self._drivers.tick()
        for name, run in list(self._runs.items()):
            newest = wanted.get(name)
            if newest is None or newest.generation != run.applied.generation:
                run.ask_to_stop()
            run.tick()
            if run.is_over and (newest is None or newest.generation != run.applied.generation):
                del self._runs[name]
                self._metrics.forget(name)
        for name, applied in wanted.items():
            if self._is_due(applied, self._runs.get(name)):
                self._runs[name] = self._new_run(name, applied)
        for name in [name for name in self._deleted if name not in self._runs]:
            self._end(self._deleted.pop(name))

    def _is_due(self, applied: Applied, run: PipelineRun | None) -> bool:
        """Without a schedule a pipeline is started once; with one, whenever the last run is over and it is time."""
        given = applied.spec.get("schedule")
        if given is None:
            return run is None
        if run is not None and not run.finished:
            return False
        schedule = Schedule.model_validate(given)
        key, now = (applied.name, applied.generation), self._now()
        if now < self._due.setdefault(key, schedule.first(now)):
            return False
        self._due = {known: at for known, at in self._due.items() if known[0] != applied.name}
        self._due[key] = schedule.after(now)
        return True

    def _end(self, deleted: Applied) -> None:
        """Its driver is gone: end what it left open, then remove its checkpoints."""
        try:
            spec = deleted.parsed()
            state = Place(self._properties, self._state_dir).state_of(spec)
            ending.reset(client_for(self._properties), deleted.name, state, backfill=False)
            state.folder.delete()
        except Exception as error:
            self._log(deleted.name, f"the deletion is not finished, `penstock pipeline delete` does it: {error}")

    def _new_run(self, name: str, applied: Applied) -> PipelineRun:
        alerts = tuple(Alert.model_validate(given) for given in applied.spec.get("alerts", ()))
        if name not in self._watches or self._watches[name].alerts != alerts:
            self._watches[name] = AlertWatch(name, alerts, int(time.time() * 1000))
        return PipelineRun(applied, self._drivers)

    # --- alerts ---

    def _take_event(self, event: dict[str, Any]) -> None:
        """From a driver's own thread."""
        self._metrics.take(event)
        watch = self._watches.get(event["pipeline"])
        if watch is not None:
            watch.take(event, int(time.time() * 1000))

    def _driver_crashed(self, event: dict[str, Any]) -> None:
        """A driver that is killed, or runs out of memory, tells nobody: its runner does."""
        self._take_event(event)
        if self._events is not None:
            content = {key: value for key, value in event.items() if key not in ("pipeline", "kind")}
            self._events.write(event["pipeline"], events.STATE, **content)

    def _watch(self) -> None:
        held = {name: applied for part in self._applied.values() for name, applied in part.items()}
        now_ms = int(time.time() * 1000)
        for name, watch in list(self._watches.items()):
            if name not in self._runs and (name not in held or held[name].desired == "stopped"):
                watch.stopped()
            for alert, firing in watch.tick(now_ms):
                self._metrics.alert(name, firing.alert, firing.state == FIRING)
                self._messenger.tell(alert, firing)
            if name not in held and name not in self._runs:
                del self._watches[name]

    def _alert_to(self, topic: str, value: bytes, key: bytes) -> None:
        if self._events is not None:
            self._events.write_to(topic, value, key)

    def _log(self, name: str, line: str) -> None:
        if self._events is not None:
            self._events.write(name, events.LOG, line=line)

    # --- the others ---

    def _look_at_neighbours(self) -> None:
        """Several runners with folders of their own: a pipeline that moves would begin anew. Say so, once."""
        now = time.monotonic()
        if self._warned or now - self._looked_at < NEIGHBOURS_SECONDS:
            return
        self._looked_at = now
        own = [name for part in self._applied.values() for name, item in part.items() if not _has_checkpoints(item)]
        if not own or len(self._neighbour_ids()) < 2:
            return
        self._warned = True
        text = (
            f"several runners share the pipelines, but checkpoints of {', '.join(sorted(own))} are on this machine only"
            f" ({self._state_dir}): a pipeline that moves to another runner would start again from the beginning."
            " Give all runners one shared --state-dir, or the pipelines settings.checkpoints"
        )
        sys.stderr.write(f"penstock: warning: {text}\n")
        for name in own:
            self._log(name, f"warning: {text}")

    def _register(self) -> None:
        now = time.monotonic()
        if self._events is not None and now - self._registered_at >= REPEAT_SECONDS:
            self._registered_at = now
            self._events.write(NOBODY, events.RUNNER, **self._registration.content())

    def _neighbour_ids(self) -> set[str]:
        from confluent_kafka.admin import AdminClient

        admin = AdminClient(settings_for_librdkafka(self._properties))
        try:
            described = admin.describe_consumer_groups([GROUP], request_timeout=10)[GROUP].result(15)
        except Exception as error:
            self._log(NOBODY, f"the other runners cannot be seen: {error}")
            return set()
        return {member.client_id for member in described.members}


def _has_checkpoints(applied: Applied) -> bool:
    return bool(applied.spec.get("settings", {}).get("checkpoints"))
