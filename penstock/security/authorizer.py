"""May this connection do that? The broker's answer: decisions by ACLs, remembered until the ACLs change.

Handlers ask `authorize`; produce and fetch look into the dictionaries of their connection's `Access`, which costs one
look-up per topic. Without `authorizer.class.name` there is no Authorizer at all, and nobody asks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.security.acl_model import CLUSTER_NAME, Operation, ResourceType, supported_operations
from penstock.security.acls import AclSet, Rules
from penstock.security.audit import Audit
from penstock.security.principal import Principal

if TYPE_CHECKING:
    from penstock.base.clock import Clock
    from penstock.base.metrics import Metrics

__all__ = ["Access", "Authorizer", "new_authorizer", "parse_super_users"]

REMEMBERED_CALLERS = 10_000
REMEMBERED_DECISIONS = 10_000


def parse_super_users(text: str) -> frozenset[str]:
    """`User:a;User:b`. Raises ValueError."""
    return frozenset(str(Principal.parse(part)) for part in text.split(";") if part.strip())


def new_authorizer(settings: Any, metrics: Metrics, clock: Clock) -> Authorizer | None:
    """As the settings want it; they are checked before."""
    if not settings["authorizer.class.name"]:
        return None
    super_users = parse_super_users(settings["super.users"])
    return Authorizer(super_users, settings["allow.everyone.if.no.acl.found"], metrics, clock)


class Access:
    """What one principal may do from one address, as far as it was asked."""

    __slots__ = ("decisions", "host", "is_broker", "name", "principal", "readable", "writable")

    def __init__(self, principal: Principal, host: str, is_broker: bool) -> None:
        self.principal = principal
        self.is_broker = is_broker  # proven to be a broker of this cluster: it may everything
        self.name = str(principal)
        self.host = host
        self.decisions: dict[tuple[str, str, str], bool] = {}
        self.writable: dict[str, bool] = {}  # topics
        self.readable: dict[str, bool] = {}

    def forget(self) -> None:
        self.decisions.clear()
        self.writable.clear()
        self.readable.clear()


class Authorizer:
    def __init__(self, super_users: frozenset[str], allow_everyone: bool, metrics: Metrics, clock: Clock) -> None:
        self.rules = Rules(AclSet(), super_users, allow_everyone)
        self.audit = Audit(metrics, clock)
        self.on_change: Callable[[], None] = lambda: None
        self._callers: dict[tuple[Principal, str, bool], Access] = {}

    def take(self, acls: AclSet) -> None:
        """New ACLs count from now on, also for whoever is connected."""
        self.rules = Rules(acls, self.rules.super_users, self.rules.allow_everyone_if_no_acl_found)
        for access in self._callers.values():
            access.forget()
        self.on_change()

    # Asking ------------------------------------------------------------------------------------------------------

    def access(self, connection: Any) -> Access:
        """The memory that this connection shares with others of the same principal and address."""
        known: Access | None = connection.access
        if known is not None and known.principal is connection.principal:
            return known
        key = (connection.principal, connection.client_host, connection.broker_id >= 0)
        found = self._callers.get(key)
        if found is None:
            if len(self._callers) >= REMEMBERED_CALLERS:
                self._callers.clear()
            found = self._callers[key] = Access(*key)
        connection.access = found
        return found

    def authorize(self, ctx: Any, operation: str, kind: str, name: str, *, audit: bool = True) -> bool:
        """Whether the request's sender may; operation and kind by their names on the wire, as `READ`, `TOPIC`."""
        return self.may(ctx.connection, operation, kind, name, audit=audit)

    def may(self, connection: Any, operation: str, kind: str, name: str, *, audit: bool = True) -> bool:
        access = self.access(connection)
        key = (operation, kind, name)
        allowed = access.decisions.get(key)
        if allowed is None:
            allowed = self._decide(access, operation, kind, name)
            _remember(access.decisions, key, allowed)
        if not allowed and audit:
            self.audit.denied(access.name, access.host, operation, kind, name)
        return allowed

    def may_write(self, connection: Any, topic: str) -> bool:
        """WRITE on a topic, for produce: one look-up when it was asked before."""
        access = connection.access
        if access is None or access.principal is not connection.principal:
            access = self.access(connection)
        return access.writable.get(topic) or self._may_topic(access, access.writable, "WRITE", topic)

    def may_read(self, connection: Any, topic: str) -> bool:
        """READ on a topic, for fetch."""
        access = connection.access
        if access is None or access.principal is not connection.principal:
            access = self.access(connection)
        return access.readable.get(topic) or self._may_topic(access, access.readable, "READ", topic)

    def _may_topic(self, access: Access, known: dict[str, bool], operation: str, topic: str) -> bool:
        allowed = known.get(topic)
        if allowed is None:
            allowed = self._decide(access, operation, "TOPIC", topic)
            _remember(known, topic, allowed)
        if not allowed:
            self.audit.denied(access.name, access.host, operation, "TOPIC", topic)
        return allowed

    def authorize_by_resource_type(self, ctx: Any, operation: str, kind: str) -> bool:
        """Whether there is any resource of this type with which the sender may do that."""
        access = self.access(ctx.connection)
        key = (operation, kind, "")  # no resource has an empty name
        allowed = access.decisions.get(key)
        if allowed is None:
            allowed = access.is_broker or self.rules.decide_for_any(
                access.name, access.host, Operation[operation], ResourceType[kind]
            )
            _remember(access.decisions, key, allowed)
        if not allowed:
            self.audit.denied(access.name, access.host, operation, kind, "any")
        return allowed

    def operations(self, connection: Any, kind: str, name: str) -> int:
        """All that is allowed with a resource, as bits."""
        return sum(
            1 << operation
            for operation in supported_operations(ResourceType[kind])
            if self.may(connection, operation.name, kind, name, audit=False)
        )

    def cluster_operations(self, connection: Any) -> int:
        """Of the cluster; nothing is told to whoever may not even describe it."""
        if not self.may(connection, "DESCRIBE", "CLUSTER", CLUSTER_NAME):
            return 0
        return self.operations(connection, "CLUSTER", CLUSTER_NAME)

    def _decide(self, access: Access, operation: str, kind: str, name: str) -> bool:
        if access.is_broker:
            return True
        return self.rules.decide(access.name, access.host, Operation[operation], ResourceType[kind], name).allowed


def _remember(memory: dict[Any, bool], key: Any, allowed: bool) -> None:
    if len(memory) >= REMEMBERED_DECISIONS:
        memory.clear()
    memory[key] = allowed
