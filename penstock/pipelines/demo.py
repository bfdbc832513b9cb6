"""The demo's own process: writes orders and payments, applies the demo pipeline, and shows what comes out.

About one order in a hundred is no JSON, so that there is something in the dead-letter topic.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import threading
import time
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any, Final

from penstock.base import supervised
from penstock.client.sync import SyncClient
from penstock.pipelines.admin import ensure_topic
from penstock.pipelines.connectors.generator import COLUMNS, record
from penstock.pipelines.control.store import PipelineStore
from penstock.pipelines.spec_yaml import load_text

TOPICS: Final = ("demo.orders", "demo.payments", "demo.revenue")
ORDERS_PER_SECOND: Final = 20
HISTORY_SECONDS: Final = 60  # so that the first windows close at once
PAYMENT_DELAY_SECONDS: Final = 2
BROKEN_EVERY: Final = 100
SHOW_SECONDS: Final = 10.0


def specification(folder: str) -> Any:
    text = resources.files("penstock.pipelines").joinpath("demo.yml").read_text(encoding="utf-8")
    return load_text(text.replace("DEMO_FOLDER", folder), "demo.yml")


class Shop:
    """Order n is placed at a fixed time, and paid a little later: the same numbers give the same records."""

    def __init__(self, producer: Any, seed: int, began: float) -> None:
        self._producer, self._seed, self._began = producer, seed, began
        self._orders = self._payments = 0

    def catch_up(self, now: float) -> None:
        """Write what has happened until now."""
        while self._at(self._orders) <= now:
            self._order(self._orders)
            self._orders += 1
        while self._at(self._payments) + PAYMENT_DELAY_SECONDS <= now:
            self._write("payments", self._payments, self._at(self._payments) + PAYMENT_DELAY_SECONDS)
            self._payments += 1
        self._producer.poll(0)

    def _at(self, number: int) -> float:
        return self._began + number / ORDERS_PER_SECOND

    def _order(self, number: int) -> None:
        if random.Random(number).randrange(BROKEN_EVERY) == 0:
            self._producer.produce("demo.orders", b'{"order_id": "cut off', f"o{number:09d}".encode())
        self._write("orders", number, self._at(number))

    def _write(self, kind: str, number: int, at: float) -> None:
        names = [column.split()[0] for column in COLUMNS[kind].split(", ")]
        row = dict(zip(names, record(kind, self._seed, number, datetime.fromtimestamp(at, UTC)), strict=True))
        value = json.dumps(row, default=lambda moment: moment.isoformat(timespec="milliseconds"))
        self._producer.produce(f"demo.{kind}", value.encode(), f"o{number:09d}".encode())


class Window:
    """Shows the newest result now and then."""

    def __init__(self, bootstrap: str) -> None:
        from confluent_kafka import Consumer

        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "demo-window",
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "log_level": 2,
            }
        )
        self._consumer.subscribe(["demo.revenue"])
        self._newest: dict[str, dict[str, Any]] = {}
        self._shown_at = 0.0

    def look(self) -> None:
        for message in self._consumer.consume(500, 0.2):
            if not message.error():
                row = json.loads(message.value())
                if row["window_start"] >= self._newest.get(row["country"], row)["window_start"]:
                    self._newest[row["country"]] = row
        if self._newest and time.monotonic() - self._shown_at > SHOW_SECONDS:
            self._shown_at = time.monotonic()
            newest = max(row["window_start"] for row in self._newest.values())
            rows = [row for row in self._newest.values() if row["window_start"] == newest]
            told = ", ".join(
                f"{row['country']} {row['revenue']:.2f}" for row in sorted(rows, key=lambda r: r["country"])
            )
            _say(f"revenue of the ten seconds from {newest}: {told}")

    def close(self) -> None:
        self._consumer.close()


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    from confluent_kafka import Producer

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--folder", required=True, type=Path)
    arguments = parser.parse_args()
    supervised.end_with_supervisor()
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    producer = Producer({"bootstrap.servers": arguments.bootstrap, "linger.ms": 20, "log_level": 2})
    now = time.time()
    shop = Shop(producer, seed=int(now), began=now - HISTORY_SECONDS)
    with SyncClient(arguments.bootstrap) as client:
        for topic in TOPICS:
            client.run(lambda inner, topic=topic: ensure_topic(inner, topic, partitions=1))  # type: ignore[misc]
        shop.catch_up(now)
        spec = specification(str(arguments.folder.absolute()))
        store = PipelineStore(client)
        known = store.all().get(spec.name)
        if known is None or known.spec != spec.to_data():
            store.apply(spec)
    _say(f"ready: orders and payments arrive, and the pipeline {spec.name} is applied")
    window = Window(arguments.bootstrap)
    while not stopping.is_set():
        shop.catch_up(time.time())
        window.look()
    producer.flush(5)
    window.close()


if __name__ == "__main__":
    main()
