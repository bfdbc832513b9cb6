"""What somebody with credentials of their own may see of a cluster: the names that its brokers show to them.

Lists and charts are of the console's own look at the cluster; what ACLs hide from the asker is taken out of them.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass

from penstock.operate.errors import UserError
from penstock.operate.groups import all_groups
from penstock.operate.session import Session

FRESH_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Sight:
    topics: frozenset[str]
    groups: frozenset[str]
    at: float


class Sights:
    """Of each session the last one, asked for again when it is old."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._known: weakref.WeakKeyDictionary[Session, Sight] = weakref.WeakKeyDictionary()

    def of(self, session: Session) -> Sight:
        with self._lock:
            known = self._known.get(session)
        if known is None or self._clock() - known.at > FRESH_SECONDS:
            known = self._ask(session)
            with self._lock:
                self._known[session] = known
        return known

    def forget(self, session: Session) -> None:
        """After a change of its own the asker wants to see it."""
        with self._lock:
            self._known.pop(session, None)

    def _ask(self, session: Session) -> Sight:
        topics = frozenset(t.name for t in session.client.metadata(None).topics.values() if not t.error_code)
        try:
            groups = frozenset(all_groups(session))
        except UserError:  # it may not ask for groups at all
            groups = frozenset()
        return Sight(topics, groups, self._clock())
