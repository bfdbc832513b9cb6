"""What a broker counts: one list of metrics, plain numbers on the hot path, Prometheus text when somebody asks.

metrics = Metrics()
produced = metrics.cell("requests", "produce")   # once, where the hot code is set up
produced.value += 1                              # per request: one attribute of one object
metrics.render()                                 # per scrape: prometheus-client is loaded and used here only
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

__all__ = ["METRICS", "Cell", "HistogramCell", "Metric", "Metrics"]

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"
LATENCY_BUCKETS_S = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
)
PREFIX = "penstock_"


class Metric(NamedTuple):
    """One row of the list; the exported name gets the prefix and, for counters, `_total`."""

    name: str
    kind: str
    labels: tuple[str, ...]
    doc: str


METRICS: tuple[Metric, ...] = (
    Metric("requests", COUNTER, ("api",), "Requests that were answered."),
    Metric("request_errors", COUNTER, ("api", "error"), "Error codes in answers."),
    Metric("request_exceptions", COUNTER, ("api", "outcome"),
           "Well-formed requests that ran into a bug, by whether they were answered or their connection was closed."),
    Metric("requests_malformed", COUNTER, (), "Frames whose bytes are no request; their connections were closed."),
    Metric("request_bytes", COUNTER, ("api",), "Bytes of requests."),
    Metric("response_bytes", COUNTER, ("api",), "Bytes of answers."),
    Metric("request_seconds", HISTOGRAM, ("api",), "Time from a request's last byte to its answer, waits included."),
    Metric("requests_in_flight", GAUGE, (), "Requests that are not answered yet."),
    Metric("request_memory_bytes", GAUGE, (), "Memory that waiting requests hold."),
    Metric("connections", GAUGE, ("listener",), "Open connections."),
    Metric("connections_opened", COUNTER, ("listener",), "Connections that were accepted."),
    Metric("connections_refused", COUNTER, ("reason",), "Connections that were refused or cut off, and why."),
    Metric("event_loop_lag_seconds", HISTOGRAM, (), "How late timers run: what everything else waits for."),
    Metric("event_loop_lag_max_seconds", GAUGE, (), "The longest that the event loop stood still since the start."),
    Metric("sendfile_bytes", COUNTER, (), "Bytes that went from file to socket without passing through the process."),
    Metric("produced_bytes", COUNTER, (), "Bytes of record batches appended for clients."),
    Metric("produced_batches", COUNTER, (), "Record batches appended for clients."),
    Metric("produced_records", COUNTER, (), "Records appended for clients."),
    Metric("fetched_bytes", COUNTER, ("reader",), "Bytes of record batches read by consumers and by followers."),
    Metric("parked", GAUGE, ("kind",), "Requests that wait for replicas or for data."),
    Metric("log_size_bytes", GAUGE, ("directory",), "Bytes of all segments in a log directory."),
    Metric("log_segments", GAUGE, ("directory",), "Segments in a log directory."),
    Metric("log_directories_offline", GAUGE, (), "Log directories that failed."),
    Metric("log_flush_seconds", HISTOGRAM, (), "Time of forcing a log to disk."),
    Metric("log_deleted_segments", COUNTER, ("reason",), "Segments that retention removed."),
    Metric("compaction_runs", COUNTER, ("result",), "Compactions that ended."),
    Metric("compaction_bytes", COUNTER, ("direction",), "Bytes read and written by compaction."),
    Metric("partitions", GAUGE, ("role",), "Replicas on this broker, by role."),
    Metric("under_replicated_partitions", GAUGE, (), "Led partitions with fewer replicas in sync than assigned."),
    Metric("under_min_isr_partitions", GAUGE, (), "Led partitions that refuse acks=all."),
    Metric("offline_partitions", GAUGE, (), "Partitions without a leader, as the controller sees them."),
    Metric("offline_replicas", GAUGE, (), "Replicas of this broker whose log directory failed or is missing."),
    Metric("stray_replicas", GAUGE, (), "Replica folders that the cluster does not know and that wait for their end."),
    Metric("unreadable_topics", GAUGE, ("topic",), "1 for a topic whose node in the metadata store cannot be read."),
    Metric("isr_changes", COUNTER, ("direction",), "Replicas that left or joined the ISR of led partitions."),
    Metric("replication_lag_records", GAUGE, (), "Largest distance of a local follower from its leader."),
    Metric("controller_active", GAUGE, (), "1 on the broker that is the controller."),
    Metric("controller_silence_seconds", GAUGE, (), "Time since this broker heard the controller."),
    Metric("fenced_brokers", GAUGE, (), "Registered brokers out of the controller's reach."),
    Metric(
        "certificate_expires_seconds", GAUGE, ("listener",), "Until a listener's certificate ends; below 0: it has."
    ),
    Metric("open_files", GAUGE, (), "Files and connections that the broker has open."),
    Metric("open_files_limit", GAUGE, (), "How many it may have open."),
    Metric("leader_elections", COUNTER, ("kind",), "Leaders that the controller elected."),
    Metric("store_connected", GAUGE, (), "1 while the metadata store answers."),
    Metric("groups", GAUGE, ("state",), "Groups of the local coordinators."),
    Metric("group_rebalances", COUNTER, ("protocol",), "Rebalances that local coordinators ran."),
    Metric("transactions_open", GAUGE, (), "Open transactions of the local coordinators."),
    Metric("transactions_ended", COUNTER, ("result",), "Transactions that were committed, aborted or timed out."),
    Metric("authentications", COUNTER, ("mechanism", "result"), "SASL exchanges that ended."),
    Metric("authorization_denied", COUNTER, ("operation",), "Operations that ACLs refused."),
    Metric("throttled", COUNTER, ("quota",), "Answers that carried a throttle time."),
)  # fmt: skip


class Cell:
    """A number with a name; hot code holds on to it."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0


class HistogramCell:
    """Counts per bucket; `observe` is a bisection and two additions."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...] = LATENCY_BUCKETS_S) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    @property
    def count(self) -> int:
        return sum(self.counts)

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


Source = Callable[[], Iterable[tuple[tuple[str, ...], float]]]


class Metrics:
    """The numbers of one broker; several brokers in one process have one each."""

    def __init__(self) -> None:
        self._known = {metric.name: metric for metric in METRICS}
        self._cells: dict[str, dict[tuple[str, ...], Any]] = {metric.name: {} for metric in METRICS}
        self._sources: dict[str, Source] = {}

    def cell(self, name: str, *labels: str) -> Cell:
        """The number of a counter or gauge under these label values."""
        found: Cell = self._get(name, labels, (COUNTER, GAUGE), Cell)
        return found

    def histogram(self, name: str, *labels: str) -> HistogramCell:
        found: HistogramCell = self._get(name, labels, (HISTOGRAM,), HistogramCell)
        return found

    def source(self, name: str, source: Source) -> None:
        """Ask `source` for (label values, number) pairs at each scrape instead of keeping a number up to date."""
        metric = self._known[name]
        if metric.kind == HISTOGRAM:
            raise ValueError(f"{name} is a histogram, only counters and gauges are asked for at scrape")
        self._sources[name] = source

    def _get(self, name: str, labels: tuple[str, ...], kinds: tuple[str, ...], make: Callable[[], Any]) -> Any:
        cells = self._cells[name]
        found = cells.get(labels)
        if found is None:
            metric = self._known[name]
            if metric.kind not in kinds or len(labels) != len(metric.labels):
                raise ValueError(f"{name} is a {metric.kind} with labels {metric.labels}, not {labels}")
            found = cells[labels] = make()
        return found

    # --- scraping ---

    def collect(self) -> Iterator[Any]:
        """prometheus-client's collector protocol."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        for metric in METRICS:
            full_name = PREFIX + metric.name
            cells = self._cells[metric.name]
            if metric.kind == HISTOGRAM:
                histogram = HistogramMetricFamily(full_name, metric.doc, labels=metric.labels)
                for labels, cell in sorted(cells.items()):
                    histogram.add_metric(list(labels), _cumulative(cell), cell.total)
                yield histogram
                continue
            family_class = CounterMetricFamily if metric.kind == COUNTER else GaugeMetricFamily
            family = family_class(full_name, metric.doc, labels=metric.labels)
            for labels, value in self._values(metric, cells):
                family.add_metric(list(labels), value)
            yield family

    def _values(self, metric: Metric, cells: dict[tuple[str, ...], Cell]) -> list[tuple[tuple[str, ...], float]]:
        source = self._sources.get(metric.name)
        if source is not None:
            return sorted(source())
        if not cells and not metric.labels:
            return [((), 0)]
        return sorted((labels, cell.value) for labels, cell in cells.items())

    def render(self) -> bytes:
        """The Prometheus text format."""
        from prometheus_client import CollectorRegistry, generate_latest

        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return generate_latest(registry)


def _cumulative(cell: HistogramCell) -> list[tuple[str, float]]:
    buckets, running = [], 0
    for bound, count in zip((*cell.bounds, float("inf")), cell.counts, strict=True):
        running += count
        buckets.append(("+Inf" if bound == float("inf") else repr(bound), float(running)))
    return buckets
