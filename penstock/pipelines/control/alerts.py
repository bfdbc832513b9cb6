"""Alerts of a pipeline: which conditions hold, since when, and who is told.

`AlertWatch` is pure: events and times in, firings out. Each alert fires once when its condition begins to hold, and is
resolved once when it has ended. `Messenger` tells: a log, a topic or a webhook.
"""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from penstock.pipelines.durations import duration_ms
from penstock.pipelines.secrets import SecretError, redacted, resolve
from penstock.pipelines.spec import Alert

FIRING: Final = "firing"
RESOLVED: Final = "resolved"
_WEBHOOK_SECONDS: Final = 10.0


@dataclass(frozen=True)
class Firing:
    pipeline: str
    alert: str
    state: str  # firing or resolved
    told: str
    at_ms: int


class AlertWatch:
    """The alerts of one pipeline. Times are milliseconds since 1970."""

    def __init__(self, pipeline: str, alerts: Iterable[Alert], now_ms: int) -> None:
        self._pipeline, self.alerts = pipeline, tuple(alerts)
        self._lags: dict[str, int] = {}  # query → records that are not read yet
        self._error: str | None = None
        self._is_running = False
        self._last_rows_ms = now_ms
        self._since: dict[Alert, int] = {}  # when its condition began to hold
        self._firing: set[Alert] = set()

    def take(self, event: Mapping[str, Any], now_ms: int) -> None:
        """An event as a driver gives it."""
        if event["kind"] == "state":
            was_running, self._is_running = self._is_running, event["state"] == "running"
            if event["state"] in ("failed", "refused"):
                self._error = str(event.get("error") or event["state"])
            elif event["state"] in ("running", "finished"):
                self._error = None
            if self._is_running and not was_running:
                self._last_rows_ms = now_ms
                self._lags.clear()
        elif event["kind"] == "progress":
            if event.get("lag") is not None:
                self._lags[event["query"]] = int(event["lag"])
            if event.get("rows"):
                self._last_rows_ms = now_ms

    def stopped(self) -> None:
        """Somebody has stopped or deleted the pipeline: nothing of it is wrong any more."""
        self._error, self._is_running = None, False
        self._lags.clear()

    def tick(self, now_ms: int) -> list[tuple[Alert, Firing]]:
        """What has begun or ended since the last look."""
        found = []
        for alert in self.alerts:
            reason = self._reason(alert, now_ms)
            if reason is None:
                self._since.pop(alert, None)
                if alert in self._firing:
                    self._firing.discard(alert)
                    found.append((alert, self._told(alert, RESOLVED, "it is over", now_ms)))
                continue
            since = self._since.setdefault(alert, now_ms)
            lasts = alert.when == "lag" and now_ms - since < duration_ms(alert.lasting)
            if alert not in self._firing and not lasts:
                self._firing.add(alert)
                found.append((alert, self._told(alert, FIRING, reason, now_ms)))
        return found

    def _reason(self, alert: Alert, now_ms: int) -> str | None:
        if alert.when == "failed":
            return self._error
        if alert.when == "no-data":
            quiet_ms = now_ms - self._last_rows_ms
            is_quiet = self._is_running and quiet_ms >= duration_ms(alert.lasting)
            return f"no rows for {alert.lasting}" if is_quiet else None
        lag = sum(list(self._lags.values()))  # events come from another thread
        return f"{lag} records are not read yet" if alert.above is not None and lag > alert.above else None

    def _told(self, alert: Alert, state: str, reason: str, now_ms: int) -> Firing:
        return Firing(self._pipeline, alert.label, state, f"{self._pipeline}: {alert.label}: {reason}", now_ms)


class Messenger:
    """Tells firings to whom an alert names. What cannot be told goes to the log instead."""

    def __init__(self, write: Callable[[str, bytes, bytes], None], log: Callable[[str, str], None]) -> None:
        self._write, self._log = write, log

    def tell(self, alert: Alert, firing: Firing) -> None:
        kind, _, place = alert.to.partition(":")
        content = json.dumps(asdict(firing)).encode()
        if kind == "topic":
            self._write(place, content, firing.pipeline.encode())
        elif kind == "webhook":
            threading.Thread(target=self._post, args=(place, content, firing), daemon=True).start()
        else:
            self._log(firing.pipeline, f"alert {firing.state}: {firing.told}")

    def _post(self, address: str, content: bytes, firing: Firing) -> None:
        try:
            request = urllib.request.Request(resolve(address), content, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=_WEBHOOK_SECONDS):
                return
        except (OSError, ValueError, SecretError) as error:
            text = f"alert {firing.state}: {firing.told}; its webhook cannot be told: {error}"
            self._log(firing.pipeline, redacted(text))
