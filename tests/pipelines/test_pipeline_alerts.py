"""Alerts: each is told once when it begins and once when it is over."""

from __future__ import annotations

import http.server
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.pipelines.control.alerts import AlertWatch, Firing, Messenger
from penstock.pipelines.control.metrics import RunnerMetrics
from penstock.pipelines.control.runner import Runner
from penstock.pipelines.control.store import Applied
from penstock.pipelines.spec import Alert, SpecError, from_data

MINUTE = 60_000
RUNNING = {"kind": "state", "state": "running"}


def progress(rows: int, lag: int, query: str = "out") -> dict[str, Any]:
    return {"kind": "progress", "query": query, "rows": rows, "lag": lag}


class Story:
    def __init__(self, **alert: Any) -> None:
        self._watch = AlertWatch("shop", [Alert.model_validate(alert)], 0)

    def stopped(self) -> None:
        self._watch.stopped()

    def then(self, at_ms: int, *events: dict[str, Any]) -> list[tuple[str, str]]:
        for event in events:
            self._watch.take(event, at_ms)
        return [(firing.state, firing.told) for _, firing in self._watch.tick(at_ms)]


def test_lag_must_last() -> None:
    story = Story(when="lag", above=100, lasting="5 minutes")
    assert story.then(0, RUNNING, progress(1, 60), progress(1, 50, "other")) == []
    assert story.then(4 * MINUTE) == []
    assert story.then(5 * MINUTE, progress(1, 10), progress(1, 10, "other")) == []  # it was gone in time
    assert story.then(6 * MINUTE, progress(1, 500)) == []
    told = "shop: lag above 100: 510 records are not read yet"
    assert story.then(11 * MINUTE) == [("firing", told)]
    assert story.then(12 * MINUTE, progress(1, 600)) == []  # once
    assert story.then(13 * MINUTE, progress(1, 0)) == [("resolved", "shop: lag above 100: it is over")]


def test_a_failure_is_told_until_it_runs_again() -> None:
    story = Story(when="failed")
    failed = {"kind": "state", "state": "failed", "error": "no space left"}
    assert story.then(0, RUNNING, failed) == [("firing", "shop: failed: no space left")]
    assert story.then(1, {"kind": "state", "state": "starting"}, failed) == []
    assert story.then(2, RUNNING) == [("resolved", "shop: failed: it is over")]


def test_what_somebody_has_stopped_alerts_nobody() -> None:
    story = Story(when="failed")
    assert story.then(0, {"kind": "state", "state": "failed", "error": "why"}) == [("firing", "shop: failed: why")]
    story.stopped()
    assert story.then(1) == [("resolved", "shop: failed: it is over")]
    behind = Story(when="lag", above=1, lasting="0 ms")
    assert behind.then(0, RUNNING, progress(1, 5))[0][0] == "firing"
    behind.stopped()
    assert behind.then(1)[0][0] == "resolved"


def test_silence_counts_only_while_it_runs() -> None:
    story = Story(when="no-data", lasting="10 minutes")
    assert story.then(60 * MINUTE) == []
    assert story.then(61 * MINUTE, RUNNING, progress(0, 0)) == []
    assert story.then(71 * MINUTE, progress(0, 0)) == [("firing", "shop: no-data: no rows for 10 minutes")]
    assert story.then(72 * MINUTE, progress(3, 0)) == [("resolved", "shop: no-data: it is over")]


@pytest.mark.parametrize(
    ("alert", "reason"),
    [
        ({"when": "lag"}, "above says how much lag is too much"),
        ({"when": "failed", "above": 3}, "belongs to when: lag, and to nothing else"),
        ({"when": "failed", "to": "pigeon"}, "to is 'pigeon'; write log, topic:NAME or webhook:URL"),
    ],
)
def test_an_alert_that_cannot_be_is_refused(alert: dict[str, Any], reason: str) -> None:
    data = {"name": "p", "sources": {"o": {"topic": "o"}}, "sinks": {"out": {"from": "o", "topic": "x"}}}
    with pytest.raises(SpecError, match=reason):
        from_data({**data, "alerts": [alert]})


def test_a_log_a_topic_and_a_webhook_are_told() -> None:
    got, has_come = [], threading.Event()

    class Hook(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()
            has_come.set()

        def log_message(self, format: str, *arguments: Any) -> None:
            return

    written: list[tuple[str, bytes, bytes]] = []
    logged: list[str] = []
    has_logged = threading.Event()

    def log(pipeline: str, line: str) -> None:
        logged.append(line)
        has_logged.set()

    messenger = Messenger(lambda *record: written.append(record), log)
    firing = Firing("shop", "failed", "firing", "shop: failed: why", 7)
    with http.server.HTTPServer(("127.0.0.1", 0), Hook) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        messenger.tell(Alert(when="failed", to=f"webhook:http://127.0.0.1:{server.server_port}/x"), firing)
        assert has_come.wait(30)
        server.shutdown()
    messenger.tell(Alert(when="failed", to="topic:alerts"), firing)
    messenger.tell(Alert(when="failed"), firing)
    assert got == [{"pipeline": "shop", "alert": "failed", "state": "firing", "told": "shop: failed: why", "at_ms": 7}]
    assert written[0][0] == "alerts" and written[0][2] == b"shop"
    assert logged == ["alert firing: shop: failed: why"]
    # One that cannot be reached is not forgotten.
    has_logged.clear()
    messenger.tell(Alert(when="failed", to="webhook:http://127.0.0.1:1/x"), firing)
    assert has_logged.wait(30) and "its webhook cannot be told" in logged[-1]


def test_a_firing_alert_is_a_metric() -> None:
    metrics = RunnerMetrics()
    metrics.alert("shop", "failed", True)
    labels = {"pipeline": "shop", "alert": "failed"}
    assert metrics.registry.get_sample_value("penstock_pipeline_alert", labels) == 1


@pytest.mark.parametrize("left", [{"shop": Applied("shop", {}, "stopped", 2, 0)}, {}])
def test_a_pipeline_that_is_stopped_or_deleted_leaves_no_alert_behind(left: dict[str, Applied], tmp_path: Path) -> None:
    runner, labels = Runner({}, str(tmp_path)), {"pipeline": "shop", "alert": "failed"}
    watch = runner._watches["shop"] = AlertWatch("shop", [Alert(when="failed")], 0)
    watch.take({"kind": "state", "state": "failed", "error": "why"}, 0)
    shown = []
    for applied in ({"shop": Applied("shop", {}, "running", 1, 0)}, left):
        runner._applied = {0: applied}
        runner._watch()
        shown.append(runner._metrics.registry.get_sample_value("penstock_pipeline_alert", labels))
    assert shown == [1, 0]
