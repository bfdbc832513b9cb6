"""Who looks at which cluster: what they may see and do there, and how a page asks without standing still."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, TypeVar

from penstock.client.errors import ClientError
from penstock.client.metadata import TopicView
from penstock.console.access.audit import Audit
from penstock.console.access.logins import Login
from penstock.console.access.users import User
from penstock.console.cluster import Cluster
from penstock.console.policy import Policy
from penstock.console.snapshot import Snapshot
from penstock.operate import admin
from penstock.operate.errors import ExitCode, UserError, not_found
from penstock.operate.session import Session

P = ParamSpec("P")
T = TypeVar("T")

FIRST_LOOK_SECONDS = 15.0


class AccessDenied(UserError):
    """The user's role does not allow it."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code=ExitCode.REFUSED)


@dataclass(frozen=True)
class Viewer:
    login: Login
    cluster: Cluster
    policy: Policy
    audit: Audit

    @property
    def user(self) -> User:
        return self.login.user

    @property
    def session(self) -> Session:
        """The cluster as this user may reach it."""
        self._insist_on_login()
        return self.cluster.session_as(self.user.name, self.user.properties)

    @property
    def snapshot(self) -> Snapshot:
        """The last look at the cluster; waits for the first one."""
        self._insist_on_login()
        found = self.cluster.snapshot or self.cluster.wait_for_look(0, FIRST_LOOK_SECONDS)
        if found is None:
            reason = self.cluster.error or "it has not answered yet"
            raise UserError(f"{self.cluster.name} cannot be reached: {reason}", code=ExitCode.UNREACHABLE)
        return found

    def sees(self, topic: str) -> bool:
        return self.policy.sees(self.user.role, topic)

    def topic(self, name: str) -> TopicView:
        """A topic that this viewer sees; one that is hidden is as unknown as one that is not there."""
        if self.sees(name):
            found = self.session.client.metadata([name]).topics.get(name)
            if found is not None and not found.error_code:
                return found
        known = (t.name for t in self.snapshot.view.topics.values() if self.sees(t.name))
        raise not_found("topic", name, (n for n in known if not admin.is_hidden(n)))

    def sees_group(self, topics: Any) -> bool:
        """A group is seen with at least one of its topics, or if it has none."""
        names = set(topics)
        return not names or any(self.sees(name) for name in names)

    def require(self, role: str) -> None:
        self._insist_on_login()
        if not self.user.may(role):
            raise AccessDenied(f"this takes the role {role}; {self.user.name} is {self.user.role}")

    def may(self, role: str) -> bool:
        return self.user.may(role)

    def _insist_on_login(self) -> None:
        if self.login.over:
            raise AccessDenied("this login is over; log in again")

    @contextmanager
    def change(self, role: str, action: str, target: str, **detail: Any) -> Iterator[Session]:
        """Around every change: the role is checked, the audit log written, and the cluster looked at again."""
        try:
            self.require(role)
            yield self.session
        except (UserError, ClientError) as error:
            why = str(error)
            self.audit.write(self.user.name, action, target, cluster=self.cluster.name, ok=False, why=why, **detail)
            raise
        self.audit.write(self.user.name, action, target, cluster=self.cluster.name, **detail)
        self.cluster.look_again()

    async def ask(self, function: Callable[Concatenate[Viewer, P], T], /, *arguments: P.args, **named: P.kwargs) -> T:
        """A function of the data service in a thread: `await viewer.ask(topics.topic_page, "orders")`."""
        return await asyncio.to_thread(function, self, *arguments, **named)
