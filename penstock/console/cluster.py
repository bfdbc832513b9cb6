"""One cluster of the console: how it is reached, what the last look at it showed, and its figures over time."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from penstock.client.errors import ClientError
from penstock.console.formats import Formats
from penstock.console.history import History, Keeper
from penstock.console.history_keepers import FolderKeeper, TopicKeeper
from penstock.console.lag_ages import LagAges
from penstock.console.recent import Recent
from penstock.console.saved_queries import SavedQueries
from penstock.console.sight import Sights
from penstock.console.snapshot import Snapshot, look
from penstock.operate import profiles
from penstock.operate.errors import UserError
from penstock.operate.groups import record_age
from penstock.operate.session import Session

log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
MOST_SESSIONS = 500  # with credentials of others
LARGEST_SHARE = 0.05  # of the time may go into looking: a large cluster is looked at less often


_WHO = ("sasl.username", "sasl.password", "sasl.jaas.config", "sasl.oauthbearer.token")


def with_credentials(properties: Mapping[str, str], credentials: Mapping[str, str]) -> dict[str, str]:
    """Nothing of the console's own name and password is left where another one stands in its place."""
    return {**{name: value for name, value in properties.items() if name not in _WHO}, **credentials}


class ConsoleSession(Session):
    """A cluster's properties as the console was given them, or with a user's own credentials on top."""

    client_id = "penstock-console"

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.patience_seconds = 10.0
        self.properties = dict(properties)


class Cluster:
    """Looked at by a thread of its own while the console runs; every page shows the same last look."""

    def __init__(self, name: str, session: Session, state_dir: Path) -> None:
        self.name, self.session, self._state_dir = name, session, state_dir
        self.history = History()
        self.saved_queries = SavedQueries(state_dir / f"queries-{quote(name, safe='')}.json")
        self.formats = Formats(state_dir / f"formats-{quote(name, safe='')}")
        self.snapshot: Snapshot | None = None
        self.error: str | None = None
        self.keeper: Keeper | None = None
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._wanted = threading.Event()
        self._thread = threading.Thread(target=self._look_on, name=f"console-{name}", daemon=True)
        self._own_sessions: dict[str, Session] = {}
        self._lock = threading.Lock()
        self.sights = Sights()
        self.recent = Recent()
        self._ages = LagAges(lambda topic, partition, offset: record_age(self.session, topic, partition, offset))

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._wanted.set()
        self._thread.join(timeout=15)
        if self.keeper is not None:
            self.keeper.close()
        for session in (self.session, *self._own_sessions.values()):
            session.close()

    def session_as(self, credentials: Mapping[str, str] | None) -> Session:
        """The cluster as it is reached with credentials other than the console's, so that the brokers' ACLs hold."""
        if not credentials:
            return self.session
        properties = with_credentials(self.session.properties, credentials)
        key = hashlib.sha256(repr(sorted(properties.items())).encode()).hexdigest()
        with self._lock:
            found = self._own_sessions.pop(key, None) or ConsoleSession(properties)
            self._own_sessions[key] = found  # the last used one is the last
            too_many = list(self._own_sessions)[:-MOST_SESSIONS]
            old = [self._own_sessions.pop(one) for one in too_many]
        for session in old:
            session.close()
        return found

    def look_again(self) -> None:
        """After a change: do not wait for the next regular look."""
        self._wanted.set()

    def wait_for_look(self, newer_than_ms: int, seconds: float) -> Snapshot | None:
        """The next snapshot, or the last one when none comes in time."""
        with self._changed:
            self._changed.wait_for(
                lambda: self.snapshot is not None and self.snapshot.at_ms > newer_than_ms, timeout=seconds
            )
            return self.snapshot

    def _look_on(self) -> None:
        while not self._closing.is_set():
            began = time.monotonic()
            try:
                self._look()
            except (UserError, ClientError, OSError) as error:
                self.error = getattr(error, "message", None) or str(error)
            except Exception:
                log.exception("a look at %s failed", self.name)
                self.error = "the console could not read the cluster's answer; its log tells more"
            took = time.monotonic() - began
            self._wanted.wait(max(LOOK_SECONDS, took / LARGEST_SHARE) if self.error is None else 2.0)
            self._wanted.clear()

    def _look(self) -> None:
        snapshot = look(self.session, self.snapshot, self._ages)
        if self.keeper is None:
            self._open_history(snapshot)
        finished = self.history.add(snapshot.at_ms, snapshot.figures)
        with self._changed:
            self.snapshot, self.error = snapshot, None
            self._changed.notify_all()
        if finished and self.keeper is not None:
            self.keeper.keep(snapshot.at_ms, finished)

    def _open_history(self, snapshot: Snapshot) -> None:
        if snapshot.is_penstock:
            self.keeper = TopicKeeper(self.session)
        else:
            self.keeper = FolderKeeper(self._state_dir / "figures" / (snapshot.view.cluster_id or self.name))
        self.history.load(self.keeper)


def from_profiles(names: list[str], state_dir: Path) -> list[Cluster]:
    """Clusters that `penstock profile` knows."""
    return [Cluster(name, ConsoleSession(_with_address(name)), state_dir) for name in names]


def _with_address(name: str) -> dict[str, str]:
    properties = profiles.load(name)
    if "bootstrap.servers" not in properties:
        raise UserError(f"profile {name} has no address", f"penstock profile set {name} bootstrap.servers=HOST:PORT")
    return properties
