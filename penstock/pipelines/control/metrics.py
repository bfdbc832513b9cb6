"""Prometheus metrics of a runner: its pipelines' states and how their queries do."""

from __future__ import annotations

from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

_GAUGES: Final = {
    "rows_per_second": "Rows that the last batch processed per second.",
    "lag": "Records of the source topics that are not read yet.",
    "batch_ms": "How long the last batch took.",
    "state_rows": "Rows in the state stores.",
    "state_bytes": "Memory that the state stores use.",
    "late": "Rows that came too late for a step, since the pipeline began or was reset; if it asks for them.",
}


class RunnerMetrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        labels = ("pipeline", "query")
        self._gauges = {
            name: Gauge(f"penstock_pipeline_{name}", text, labels, registry=self.registry)
            for name, text in _GAUGES.items()
        }
        self._rows = Counter("penstock_pipeline_rows", "Rows read.", labels, registry=self.registry)
        self._batches = Counter("penstock_pipeline_batches", "Batches finished.", labels, registry=self.registry)
        self._running = Gauge("penstock_pipeline_running", "1 while it runs.", ("pipeline",), registry=self.registry)
        self._failures = Counter(
            "penstock_pipeline_failures", "How often a driver failed.", ("pipeline",), registry=self.registry
        )
        self._alerts = Gauge(
            "penstock_pipeline_alert", "1 while the alert fires.", ("pipeline", "alert"), registry=self.registry
        )
        self._queries: dict[str, set[str]] = {}

    def serve(self, port: int, host: str = "127.0.0.1") -> None:
        start_http_server(port, host, registry=self.registry)

    def take(self, event: dict[str, Any]) -> None:
        """An event as a driver prints it."""
        pipeline = event["pipeline"]
        if event["kind"] == "state":
            self._running.labels(pipeline).set(event["state"] == "running")
            if event["state"] in ("failed", "refused"):
                self._failures.labels(pipeline).inc()
        elif event["kind"] == "progress":
            query = event["query"]
            self._queries.setdefault(pipeline, set()).add(query)
            for name, gauge in self._gauges.items():
                if event.get(name) is not None:
                    gauge.labels(pipeline, query).set(event[name])
            self._rows.labels(pipeline, query).inc(event["rows"])
            self._batches.labels(pipeline, query).inc()

    def alert(self, pipeline: str, alert: str, is_firing: bool) -> None:
        self._alerts.labels(pipeline, alert).set(is_firing)

    def forget(self, pipeline: str) -> None:
        for query in self._queries.pop(pipeline, set()):
            for gauge in self._gauges.values():
                if (pipeline, query) in gauge._metrics:
                    gauge.remove(pipeline, query)
        self._running.labels(pipeline).set(0)
