"""Who looks at which cluster: what they may see and do there, and how a page asks without standing still."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Concatenate, ParamSpec, TypeVar

from penstock.client.errors import ClientError
from penstock.client.metadata import TopicView
from penstock.console.access.access_file import Runner
from penstock.console.access.audit import Audit
from penstock.console.access.logins import Login
from penstock.console.access.users import User
from penstock.console.cluster import Cluster
from penstock.console.policy import Policy
from penstock.console.sight import Sight
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
    credentials: Mapping[str, str] | None = field(default=None, repr=False)
    """With which brokers are asked: the user's own or those of the role; None: the console's."""
    runner: Runner | None = None
    """What pipelines of editors may use; None: only admins apply."""

    @property
    def user(self) -> User:
        return self.login.user

    @property
    def session(self) -> Session:
        """The cluster as this user may reach it."""
        self._insist_on_login()
        return self.cluster.session_as(self.credentials)

    @property
    def snapshot(self) -> Snapshot:
        """The last look at the cluster; waits for the first one."""
        self._insist_on_login()
        found = self.cluster.snapshot or self.cluster.wait_for_look(0, FIRST_LOOK_SECONDS)
        if found is None:
            reason = self.cluster.error or "it has not answered yet"
            raise UserError(f"{self.cluster.name} cannot be reached: {reason}", code=ExitCode.UNREACHABLE)
        return found

    @property
    def sees_everything(self) -> bool:
        """No rule and no ACL hides a topic: names of what has no topics, or of all of them, may be shown."""
        return self.credentials is None and self.policy.sees_everything(self.user.role)

    def allows(self, topic: str) -> bool:
        """Whether the console's own rules show a topic of that name."""
        return self.policy.sees(self.user.role, topic)

    def sees(self, topic: str) -> bool:
        """Whether rules and, for credentials other than the console's, the brokers' ACLs show it."""
        return self.allows(topic) and (self.credentials is None or topic in self._sight.topics)

    @property
    def _sight(self) -> Sight:
        return self.cluster.sights.of(self.session)

    def topic(self, name: str) -> TopicView:
        """A topic that this viewer sees; one that is hidden is as unknown as one that is not there."""
        if self.allows(name):
            found = self.session.client.metadata([name]).topics.get(name)
            if found is not None and not found.error_code:
                return found
        known = (t.name for t in self.snapshot.view.topics.values() if self.sees(t.name))
        raise not_found("topic", name, (n for n in known if not admin.is_hidden(n)))

    def sees_group(self, name: str, topics: Iterable[str]) -> bool:
        """A group is seen with at least one of its topics; one without topics by who sees all of them."""
        if self.credentials is not None and name not in self._sight.groups:
            return False
        names = set(topics)
        return any(self.sees(topic) for topic in names) if names else self.policy.sees_everything(self.user.role)

    def sees_all_of(self, topics: Iterable[str]) -> bool:
        """What names topics, such as a pipeline, is seen with all of them."""
        return all(self.sees(topic) for topic in topics)

    def masks(self, topics: Iterable[str]) -> bool:
        """Whether something of the records of one of these is hidden."""
        return any(self.policy.masked_fields(self.user.role, topic) for topic in topics)

    @property
    def sees_every_record(self) -> bool:
        """No rule hides a topic or masks a field."""
        return self.policy.sees_everything(self.user.role) and not self.policy.masks_something(self.user.role)

    def insist_on_reading(self, topic: str) -> None:
        """Records of internal topics tell of all others, and of what drivers said about their records."""
        if admin.is_hidden(topic) and not self.sees_every_record:
            raise AccessDenied(f"{topic} tells of every topic: it is for who sees all of them, and every field")

    @staticmethod
    def role_to_change(name: str) -> str:
        """Internal topics and groups are the cluster's own: applied pipelines, for example, are records of one."""
        return "admin" if admin.is_hidden(name) else "editor"

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
        if self.credentials is not None:
            self.cluster.sights.forget(self.session)
        self.cluster.recent.forget()
        self.cluster.look_again()

    async def ask(self, function: Callable[Concatenate[Viewer, P], T], /, *arguments: P.args, **named: P.kwargs) -> T:
        """A function of the data service in a thread: `await viewer.ask(topics.topic_page, "orders")`."""
        return await asyncio.to_thread(function, self, *arguments, **named)
