"""One protocol client per process and cluster: Spark's Python workers live long and run many tasks."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from penstock.client.sync import SyncClient

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
            found = _clients[key] = SyncClient.from_properties(named)
        return found
