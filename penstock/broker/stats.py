"""The cells of base.metrics that broker/ counts in, found once so that the hot path only adds to attributes."""

from __future__ import annotations

import resource
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.base.metrics import Metrics
from penstock.log.lost_and_found import stray_count
from penstock.protocol.errors import error_name

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

LabelledValues = Iterable[tuple[tuple[str, ...], float]]

OPEN_FILES = Path("/proc/self/fd")


class ApiStats:
    """Requests of one API: how many, how many failed, how long they took."""

    __slots__ = ("_histogram", "_metrics", "name", "observe", "request_bytes", "response_bytes")

    def __init__(self, metrics: Metrics, name: str) -> None:
        self.name = name
        self._metrics = metrics
        self.request_bytes = metrics.cell("request_bytes", name)
        self.response_bytes = metrics.cell("response_bytes", name)
        self._histogram = metrics.histogram("request_seconds", name)
        self.observe = self._histogram.observe  # how long a request took

    @property
    def count(self) -> int:
        return self._histogram.count

    def error(self, code: int) -> None:
        """Count an error code in an answer."""
        self._metrics.cell("request_errors", self.name, error_name(code)).value += 1


class BrokerStats:
    """Plain numbers of the hot path, handed to Prometheus at each scrape."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics
        self.apis: dict[int, ApiStats] = {}
        self.sendfile_bytes = metrics.cell("sendfile_bytes")
        self.produced_bytes = metrics.cell("produced_bytes")
        self.produced_batches = metrics.cell("produced_batches")
        self.produced_records = metrics.cell("produced_records")
        self.fetched_bytes = metrics.cell("fetched_bytes", "consumer")
        self.replicated_bytes = metrics.cell("fetched_bytes", "follower")
        self.malformed = metrics.cell("requests_malformed")
        self.loop_lag = metrics.histogram("event_loop_lag_seconds")
        self.loop_lag_max = metrics.cell("event_loop_lag_max_seconds")

    def ran_into_bug(self, api: str, outcome: str) -> None:
        """An exception that no rule foresaw; `outcome` is "answered" or "closed"."""
        self.metrics.cell("request_exceptions", api, outcome).value += 1

    def api(self, key: int, name: str) -> ApiStats:
        found = self.apis.get(key)
        if found is None:
            found = self.apis[key] = ApiStats(self.metrics, name)
        return found


def connect_sources(broker: Broker) -> None:
    """What is looked at only when somebody asks for metrics."""
    metrics = broker.metrics

    def requests() -> LabelledValues:
        return [((api.name,), api.count) for api in broker.stats.apis.values()]

    def connections() -> LabelledValues:
        return [((listener.name,), len(listener.connections)) for listener in broker.listeners]

    def in_flight() -> LabelledValues:
        return [((), sum(len(c.slots) for listener in broker.listeners for c in listener.connections))]

    def request_memory() -> LabelledValues:
        return [((), sum(len(c.view) for listener in broker.listeners for c in listener.connections))]

    def parked() -> LabelledValues:
        polls = len(broker.dispatcher.long_polls)
        return [(("fetch",), polls), (("produce",), broker.replicas.parking.parked - polls)]

    def partitions() -> LabelledValues:
        hosted = broker.replicas.partitions.values()
        leaders = sum(partition.is_leader for partition in hosted)
        return [(("leader",), leaders), (("follower",), len(hosted) - leaders)]

    def under_replicated() -> LabelledValues:
        return [((), sum(p.is_leader and len(p.isr) < len(p.replicas) for p in broker.replicas.partitions.values()))]

    def under_min_isr() -> LabelledValues:
        return [((), sum(p.under_min_isr() for p in broker.replicas.partitions.values()))]

    def log_sizes() -> LabelledValues:
        sizes: dict[str, int] = {}
        for log in broker.log_manager.logs():
            folder = str(log.directory.parent)
            sizes[folder] = sizes.get(folder, 0) + log.size_bytes()
        return [((folder,), size) for folder, size in sizes.items()]

    def offline() -> LabelledValues:
        return [((), sum(p.leader < 0 for t in broker.image.topics.values() for p in t.partitions.values()))]

    def controller() -> LabelledValues:
        return [((), int(broker.controller.is_active))]

    def missing() -> LabelledValues:
        return [((), len(broker.replicas.offline))]

    def strays() -> LabelledValues:
        return [((), stray_count(broker.log_manager))]

    def unreadable() -> LabelledValues:
        return [((topic,), 1) for topic in broker.image.unreadable]

    def silence() -> LabelledValues:
        return [((), broker.image_holder.controller_silence_s)]

    def fenced() -> LabelledValues:
        return [((), sum(registration.fenced for registration in broker.image.brokers.values()))]

    def certificates() -> LabelledValues:
        now_s = broker.clock.now_ms() / 1000
        return [((one.name,), one.tls.ends_in_seconds(now_s)) for one in broker.listeners if one.tls is not None]

    def files() -> LabelledValues:
        return [((), open_file_count())]

    def file_limit() -> LabelledValues:
        return [((), resource.getrlimit(resource.RLIMIT_NOFILE)[0])]

    metrics.source("requests", requests)
    metrics.source("connections", connections)
    metrics.source("requests_in_flight", in_flight)
    metrics.source("request_memory_bytes", request_memory)
    metrics.source("parked", parked)
    metrics.source("partitions", partitions)
    metrics.source("under_replicated_partitions", under_replicated)
    metrics.source("under_min_isr_partitions", under_min_isr)
    metrics.source("log_size_bytes", log_sizes)
    metrics.source("offline_partitions", offline)
    metrics.source("offline_replicas", missing)
    metrics.source("stray_replicas", strays)
    metrics.source("unreadable_topics", unreadable)
    metrics.source("controller_active", controller)
    metrics.source("controller_silence_seconds", silence)
    metrics.source("fenced_brokers", fenced)
    metrics.source("certificate_expires_seconds", certificates)
    metrics.source("open_files", files)
    metrics.source("open_files_limit", file_limit)


def open_file_count() -> int:
    """As Linux tells it; 0 elsewhere. Newer kernels know the number without listing them all."""
    try:
        return OPEN_FILES.stat().st_size or sum(1 for _ in OPEN_FILES.iterdir())
    except OSError:
        return 0
