"""What happens to pipelines, in the topic `__penstock_progress`: states, progress, errors, lines of logs.

A driver writes under the transactional id of its pipeline. Whoever opens that id last is the pipeline's only driver:
the one before is fenced by the broker, learns it with its next event, and ends.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from penstock.client.records import EARLIEST
from penstock.client.sync import SyncClient
from penstock.pipelines.admin import ensure_topic
from penstock.pipelines.connectors.topic_sample import records_of
from penstock.pipelines.control.store import settings_for_librdkafka
from penstock.pipelines.ending import driver_id

log = logging.getLogger(__name__)

TOPIC: Final = "__penstock_progress"
_SETTINGS: Final = {"cleanup.policy": "delete", "retention.ms": "604800000", "segment.bytes": "67108864"}
_WRITE_SECONDS: Final = 30.0
_SHOWN: Final = 20_000  # how far back status and logs look

DAY_MS: Final = 86_400_000
ALIVE_SECONDS: Final = 3.0  # a driver says at least so often that it is there

STATE, PROGRESS, LOG, ALIVE = "state", "progress", "log", "alive"
RUNNER = "runner"  # what a runner says of itself, under the pipeline NOBODY


class Fenced(Exception):
    """Another driver runs this pipeline now."""


def ensure(client: SyncClient) -> None:
    client.run(lambda inner: ensure_topic(inner, TOPIC, partitions=1, settings=_SETTINGS, internal=True))


class EventWriter:
    """Events of one pipeline by its one driver."""

    def __init__(self, properties: Mapping[str, str], pipeline: str) -> None:
        from confluent_kafka import KafkaException, Producer

        self._error = KafkaException
        self._pipeline = pipeline
        self._producer = Producer(
            {
                **settings_for_librdkafka(properties),
                "transactional.id": driver_id(pipeline),
                "transaction.timeout.ms": 60_000,
                "client.id": "penstock-driver",
            }
        )
        self._producer.init_transactions(_WRITE_SECONDS)

    def write(self, kind: str, **content: Any) -> None:
        """Fenced if another driver has taken over; an event that cannot be written for another reason is an error."""
        event = {"pipeline": self._pipeline, "kind": kind, "at_ms": int(time.time() * 1000), **content}
        try:
            self._producer.begin_transaction()
            self._producer.produce(TOPIC, json.dumps(event).encode(), self._pipeline.encode())
            self._producer.commit_transaction(_WRITE_SECONDS)
        except self._error as error:
            if error.args[0].fatal():
                raise Fenced(f"another driver runs pipeline {self._pipeline} now") from None
            if error.args[0].txn_requires_abort():
                self._producer.abort_transaction(_WRITE_SECONDS)
            raise


class PlainWriter:
    """Events by a runner: lines of its drivers' logs, and what it did about them."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        from confluent_kafka import Producer

        self._producer = Producer({**settings_for_librdkafka(properties), "client.id": "penstock-runner"})

    def write(self, pipeline: str, kind: str, **content: Any) -> None:
        event = {"pipeline": pipeline, "kind": kind, "at_ms": int(time.time() * 1000), **content}
        self._producer.produce(TOPIC, json.dumps(event).encode(), pipeline.encode())
        self._producer.poll(0)

    def write_to(self, topic: str, value: bytes, key: bytes) -> None:
        """A record into another topic than that of the events."""
        self._producer.produce(topic, value, key)
        self._producer.poll(0)

    def close(self) -> None:
        self._producer.flush(5)


class SignsOfLife:
    """Of a pipeline that runs in the foreground, without a runner: so that others know whose transactions are open."""

    def __init__(self, properties: Mapping[str, str], pipeline: str) -> None:
        self._writer, self._pipeline, self._told_at = PlainWriter(properties), pipeline, -ALIVE_SECONDS

    def tell(self) -> None:
        if time.monotonic() - self._told_at >= ALIVE_SECONDS:
            self._told_at = time.monotonic()
            self._writer.write(self._pipeline, ALIVE, runner="foreground")

    def close(self) -> None:
        self._writer.close()


def recent(client: SyncClient, pipeline: str | None = None, limit: int = _SHOWN) -> Iterator[dict[str, Any]]:
    """The last events, oldest first. Looking creates no topic."""
    if TOPIC not in client.metadata([TOPIC]).topics or client.metadata([TOPIC]).topics[TOPIC].error_code:
        return
    for _, record in records_of(client, TOPIC, start=EARLIEST, limit=limit * 2, tail=limit):
        if record.value is not None and (pipeline is None or record.key == pipeline.encode()):
            event = _read(record.value)
            if event is None:
                log.debug("%s at %d holds no event", TOPIC, record.offset)
            else:
                yield event


_FIELDS: Final = {STATE: ("state", str), PROGRESS: ("query", str), LOG: ("line", str), RUNNER: ("runner", str)}


def _read(value: bytes) -> dict[str, Any] | None:
    """None for what is no event: whoever may write to the topic may write anything."""
    try:
        event = json.loads(value)
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict) or not isinstance(event.get("at_ms"), int):
        return None
    wanted = [("pipeline", str), ("kind", str)]
    wanted += [_FIELDS[kind] for kind in _FIELDS if kind == event.get("kind")]
    return event if all(isinstance(event.get(name), kind) for name, kind in wanted) else None


def latest_states(client: SyncClient) -> dict[str, dict[str, Any]]:
    """pipeline → its last state, with the last progress of each of its queries under `queries`."""
    found: dict[str, dict[str, Any]] = {}
    fold(found, recent(client))
    return found


def fold(found: dict[str, dict[str, Any]], events: Iterable[Mapping[str, Any]]) -> None:
    """Bring states up to date with events; those that were folded in already may come once more, with all after."""
    for event in events:
        entry = found.setdefault(event["pipeline"], {"state": "unknown", "queries": {}})
        if event["kind"] == STATE:
            if event["state"] == "starting":
                entry["queries"] = {}
            entry.update({key: value for key, value in event.items() if key not in ("kind", "queries")})
            entry["error"], entry["spark_ui"] = event.get("error"), event.get("spark_ui")
        elif event["kind"] == PROGRESS:
            entry["queries"][event["query"]] = event
        elif event["kind"] == RUNNER:
            known = {
                name: last for name, last in entry.get("runners", {}).items() if event["at_ms"] - last["at_ms"] < DAY_MS
            }
            entry["runners"] = {**known, event["runner"]: event}
        if event["kind"] != LOG:
            entry["seen_at_ms"] = event["at_ms"]
