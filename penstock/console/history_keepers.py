"""Where figures are kept: in the topic `__penstock_metrics` of our own clusters, else in files of the state folder."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from penstock.operate.session import Session
from penstock.pipelines.admin import ensure_topic
from penstock.pipelines.connectors.topic_sample import records_of

log = logging.getLogger(__name__)

TOPIC = "__penstock_metrics"
GROUP = "__penstock_console"
_SETTINGS = {"cleanup.policy": "delete", "retention.ms": "604800000", "segment.bytes": "16777216"}
_MANY = 1_000_000
_CHUNK = 2_000  # figures in a record


class TopicKeeper:
    """One record a minute. Of several consoles one writes: the member of the group that owns the topic's partition."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._is_writer = False
        self._closing = threading.Event()
        session.client.run(lambda client: ensure_topic(client, TOPIC, partitions=1, settings=_SETTINGS))
        self._thread = threading.Thread(target=self._stand_for_election, name="console-election", daemon=True)
        self._thread.start()

    @property
    def is_writer(self) -> bool:
        return self._is_writer

    def _stand_for_election(self) -> None:
        from confluent_kafka import Consumer, KafkaException

        consumer = Consumer(
            self._session.librdkafka(
                **{"group.id": GROUP, "enable.auto.commit": False, "auto.offset.reset": "latest", "log_level": 0}
            )
        )
        try:
            consumer.subscribe([TOPIC], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke)
            while not self._closing.is_set():
                consumer.poll(0.5)
        except KafkaException as error:
            log.warning("no election of the writer of figures: %s", error)
        finally:
            self._is_writer = False
            consumer.close()

    def _on_assign(self, consumer: Any, partitions: list[Any]) -> None:
        self._is_writer = bool(partitions)
        consumer.pause(partitions)  # membership is all that is wanted

    def _on_revoke(self, _consumer: Any, _partitions: list[Any]) -> None:
        self._is_writer = False

    def load(self, since_ms: int) -> Iterator[tuple[int, Mapping[str, float]]]:
        for _, record in records_of(self._session.client, TOPIC, start=since_ms, limit=_MANY):
            if record.value is not None:
                content = json.loads(record.value)
                yield content["at_ms"], content["values"]

    def keep(self, at_ms: int, values: Mapping[str, float]) -> None:
        if not self._is_writer or not values:
            return
        from penstock.pipelines.admin import write

        names = list(values)
        rows: list[tuple[bytes | None, bytes | None, tuple[()]]] = []
        for start in range(0, len(names), _CHUNK):
            chunk = {name: values[name] for name in names[start : start + _CHUNK]}
            rows.append((None, json.dumps({"at_ms": at_ms, "values": chunk}).encode(), ()))
        self._session.client.run(lambda client: write(client, TOPIC, 0, rows))

    def close(self) -> None:
        self._closing.set()
        self._thread.join(timeout=10)


class FolderKeeper:
    """One file a day for a cluster that is not ours: nothing is created there."""

    def __init__(self, folder: Path, days: int = 7) -> None:
        self._folder, self._days = folder, days
        folder.mkdir(parents=True, exist_ok=True)

    def load(self, since_ms: int) -> Iterator[tuple[int, Mapping[str, float]]]:
        for path in sorted(self._folder.glob("figures-*.jsonl")):
            for line in path.read_text().splitlines():
                try:
                    content = json.loads(line)
                except ValueError:
                    continue  # the last line of a process that was killed
                if content["at_ms"] >= since_ms:
                    yield content["at_ms"], content["values"]

    def keep(self, at_ms: int, values: Mapping[str, float]) -> None:
        if not values:
            return
        today = self._folder / f"figures-{time.strftime('%Y-%m-%d', time.gmtime(at_ms / 1000))}.jsonl"
        is_new = not today.exists()
        descriptor = os.open(today, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "a") as file:
            file.write(json.dumps({"at_ms": at_ms, "values": dict(values)}) + "\n")
        if is_new:
            for old in sorted(self._folder.glob("figures-*.jsonl"))[: -self._days]:
                old.unlink()

    def close(self) -> None: ...
