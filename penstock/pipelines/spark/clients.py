"""One protocol client per process and cluster: Spark's Python workers live long and run many tasks."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Final

from penstock.client.retry import RetryPolicy
from penstock.client.sync import SyncClient

# A broker that is away for a minute must not end a query: Spark would start it all over again, or not at all.
_PATIENT: Final = RetryPolicy(total_timeout_s=120.0)

_clients: dict[frozenset[tuple[str, str]], SyncClient] = {}
_lock = threading.Lock()


def client_for(properties: Mapping[str, str]) -> SyncClient:
    """The client for these properties (`bootstrap.servers`, security); it survives forks and lives with the process."""
    key = frozenset(properties.items())
    with _lock:
        found = _clients.get(key)
        if found is None:
            named = dict(properties)
            named.setdefault("client.id", "penstock-spark")
            found = _clients[key] = SyncClient.from_properties(named, retry=_PATIENT)
        return found
