"""Renders deploy/grafana/penstock.json from a table of panels: `python scripts/render_dashboard.py`."""

from __future__ import annotations

import json
from pathlib import Path

TARGET = Path(__file__).resolve().parent.parent / "deploy" / "grafana" / "penstock.json"
COLUMNS, WIDTH, HEIGHT = 2, 12, 8

# Each: its title, the unit of its axis, and its queries with their legends.
PANELS: list[tuple[str, str, list[tuple[str, str]]]] = [
    ("Produced", "Bps", [("sum by (instance) (rate(penstock_produced_bytes_total[1m]))", "{{instance}}")]),
    ("Fetched", "Bps", [("sum by (reader) (rate(penstock_fetched_bytes_total[1m]))", "by {{reader}}")]),
    ("Records produced", "cps", [("sum(rate(penstock_produced_records_total[1m]))", "records")]),
    ("Requests", "reqps", [("topk(8, sum by (api) (rate(penstock_requests_total[1m])))", "{{api}}")]),
    (
        "Time of requests, 99 of 100",
        "s",
        [
            (
                "histogram_quantile(0.99, sum by (le, api)"
                ' (rate(penstock_request_seconds_bucket{api=~"Produce|Metadata|OffsetCommit"}[5m])))',
                "{{api}}",
            )
        ],
    ),
    (
        "Event loop, 99 of 100",
        "s",
        [
            (
                "histogram_quantile(0.99, sum by (le, instance) (rate(penstock_event_loop_lag_seconds_bucket[5m])))",
                "{{instance}}",
            )
        ],
    ),
    (
        "Partitions in trouble",
        "none",
        [
            ("max(penstock_offline_partitions)", "without a leader"),
            ("sum(penstock_under_min_isr_partitions)", "refuse acks=all"),
            ("sum(penstock_under_replicated_partitions)", "under-replicated"),
        ],
    ),
    ("Replication lag", "none", [("penstock_replication_lag_records", "{{instance}}")]),
    ("Connections", "none", [("sum by (instance) (penstock_connections)", "{{instance}}")]),
    ("Bytes on disk", "bytes", [("penstock_log_size_bytes", "{{instance}} {{directory}}")]),
    ("Groups", "none", [("sum by (state) (penstock_groups)", "{{state}}")]),
    ("Open transactions", "none", [("sum by (instance) (penstock_transactions_open)", "{{instance}}")]),
    (
        "Refused",
        "cps",
        [
            ("sum by (operation) (rate(penstock_authorization_denied_total[5m]))", "denied {{operation}}"),
            ("sum by (reason) (rate(penstock_connections_refused_total[5m]))", "connections: {{reason}}"),
        ],
    ),
    ("Throttled", "cps", [("sum by (quota) (rate(penstock_throttled_total[5m]))", "{{quota}}")]),
]


def dashboard() -> dict[str, object]:
    source = {"type": "prometheus", "uid": "${source}"}
    panels = [
        {
            "id": number + 1,
            "type": "timeseries",
            "title": title,
            "datasource": source,
            "gridPos": {"x": number % COLUMNS * WIDTH, "y": number // COLUMNS * HEIGHT, "w": WIDTH, "h": HEIGHT},
            "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
            "targets": [
                {"refId": chr(ord("A") + index), "expr": expression, "legendFormat": legend, "datasource": source}
                for index, (expression, legend) in enumerate(queries)
            ],
        }
        for number, (title, unit, queries) in enumerate(PANELS)
    ]
    variable = {"name": "source", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
    return {
        "uid": "penstock",
        "title": "Penstock",
        "schemaVersion": 39,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [variable]},
        "panels": panels,
    }


def render() -> str:
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(render(), encoding="utf-8")
