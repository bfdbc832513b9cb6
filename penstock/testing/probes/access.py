"""Who may do what: every client API, asked by roles that lack one right or another, on a broker with ACLs.

Roles are loopback addresses: 127.0.0.1 may everything, 127.0.0.10 and up only what their ACLs grant. So one broker
serves them all without passwords. The broker must start with `allow.everyone.if.no.acl.found=true`; the first ACLs, for
127.0.0.1 on everything, end that freedom.
"""

from __future__ import annotations

import socket
import time
import uuid
from typing import Any

from penstock.protocol import kio_schema, messages
from penstock.testing.probes.harness import CLOSED, Session, plain

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, TOKEN, USER = 2, 3, 4, 5, 6, 7
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, CLUSTER_ACTION = 2, 3, 4, 5, 6, 7, 8, 9
DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = 10, 11, 12
ADMIN_HOST = "127.0.0.1"
RETRIABLE = {14, 15, 16, 51}  # loading, not available, not coordinator, concurrent transactions

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "group.initial.rebalance.delay.ms": "0",
}

Grant = tuple[int, str, int]
"""(resource type, name in which {} is the role, operation)"""

ROLES: dict[str, list[Grant]] = {
    "nobody": [],
    "reader": [(TOPIC, "t-{}", READ), (GROUP, "g-{}", READ)],
    "writer": [(TOPIC, "t-{}", WRITE), (TRANSACTIONAL_ID, "x-{}", WRITE)],
    "describer": [
        (TOPIC, "t-{}", DESCRIBE),
        (GROUP, "g-{}", DESCRIBE),
        (CLUSTER, "kafka-cluster", DESCRIBE),
        (TRANSACTIONAL_ID, "x-{}", DESCRIBE),
    ],
    "config reader": [
        (TOPIC, "t-{}", DESCRIBE_CONFIGS),
        (GROUP, "g-{}", DESCRIBE_CONFIGS),
        (CLUSTER, "kafka-cluster", DESCRIBE_CONFIGS),
    ],
    "config writer": [
        (TOPIC, "t-{}", ALTER_CONFIGS),
        (GROUP, "g-{}", ALTER_CONFIGS),
        (CLUSTER, "kafka-cluster", ALTER_CONFIGS),
    ],
    "alterer": [(TOPIC, "t-{}", ALTER), (CLUSTER, "kafka-cluster", ALTER)],
    "deleter": [(TOPIC, "t-{}", DELETE), (GROUP, "g-{}", DELETE)],
    "creator": [(TOPIC, "new-{}", CREATE), (TOPIC, "auto-{}", CREATE), (TOPIC, "auto-{}", DESCRIBE)],
    "cluster creator": [(CLUSTER, "kafka-cluster", CREATE), (TOPIC, "auto-{}", DESCRIBE)],
    "idempotent": [(CLUSTER, "kafka-cluster", IDEMPOTENT_WRITE)],
    "owner": [(TOPIC, "t-{}", ALL), (GROUP, "g-{}", ALL), (TRANSACTIONAL_ID, "x-{}", ALL)],
}


def build(api_name: str, version: int, values: dict[str, Any]) -> Any:
    """A request from plain dictionaries and lists; what is not named has its default."""
    api = messages.api(api_name).load_all_versions()
    schema = kio_schema.message_schema(api_name, version, "request")

    def struct(schema: Any, given: dict[str, Any], root: bool = False) -> Any:
        made = {}
        for field in schema.fields:
            if field.name not in given:
                continue
            value = given[field.name]
            if field.struct is not None and isinstance(value, list):
                value = [struct(field.struct, item) for item in value]
            elif field.struct is not None and isinstance(value, dict):
                value = struct(field.struct, value)
            made[field.name] = value
        unknown = set(given) - {field.name for field in schema.fields}
        if unknown:
            raise TypeError(f"{schema.name} v{version} has no {', '.join(sorted(unknown))}")
        return (api.Request if root else api.request_struct(schema.name))(**made)

    return struct(schema, values, root=True)


class RoleSession(Session):
    """A conversation from one address."""

    def __init__(self, port: int, host: str) -> None:
        super().__init__(port, host)
        self.host = host

    def connection(self) -> socket.socket:
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self.port), timeout=20, source_address=(self.host, 0))
        return self._socket

    def request(self, api_name: str, version: int, **values: Any) -> Any:
        """The decoded answer; asked again while a coordinator is not ready."""
        deadline = time.monotonic() + 20
        while True:
            answer = self.call(api_name, version, build(api_name, version, values))
            if not _codes(answer) & RETRIABLE or time.monotonic() > deadline:
                return answer
            time.sleep(0.05)


def _codes(value: Any) -> set[int]:
    if isinstance(value, list):
        return set().union(*map(_codes, value))
    if isinstance(value, messages.Struct):
        found = {value.__dict__[name] for name in ("error_code", "partition_error_code") if name in value.__dict__}
        return found.union(*(_codes(v) for v in value.__dict__.values()))
    return set()


def grant(admin: RoleSession, host: str, grants: list[Grant], role: str = "", permission: int = ALLOW) -> None:
    answer = admin.request(
        "create_acls",
        3,
        creations=[
            {
                "resource_type": kind,
                "resource_name": name.format(role),
                "resource_pattern_type": LITERAL,
                "principal": "User:ANONYMOUS",
                "host": host,
                "operation": operation,
                "permission_type": permission,
            }
            for kind, name, operation in grants
        ],
    )
    failed = [result for result in answer.results if result.error_code]
    if failed:
        raise AssertionError(f"cannot grant: {failed}")


def everything_to_admin(admin: RoleSession) -> None:
    names = {CLUSTER: "kafka-cluster"}
    kinds = (TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, TOKEN, USER)
    # The cluster comes first: from its first rule on, only that rule counts.
    grant(admin, ADMIN_HOST, [(kind, names.get(kind, "*"), ALL) for kind in (CLUSTER, *kinds)])


class World:
    """What one role finds: topics with a record, a group with an offset."""

    def __init__(self, admin: RoleSession, port: int, role: str, number: int) -> None:
        self.admin = admin
        self.role = role.replace(" ", "-")
        self.session = RoleSession(port, f"127.0.0.{10 + number}")
        self.topic, self.other = f"t-{self.role}", f"other-{self.role}"
        self.group, self.transactional_id = f"g-{self.role}", f"x-{self.role}"
        for topic in (self.topic, self.other):
            created = admin.request(
                "create_topics", 7, topics=[{"name": topic, "num_partitions": 1, "replication_factor": 1}]
            )
            if created.topics[0].error_code:
                raise AssertionError(f"cannot create: {created}")
            admin.wait_for_leaders(topic, 1)
            admin._wait_until_served(topic, 1)
        self.ids: dict[str, uuid.UUID] = {topic: admin.topic_id(topic) for topic in (self.topic, self.other)}
        admin.request(
            "offset_commit",
            8,
            group_id=self.group,
            generation_id_or_member_epoch=-1,
            topics=[{"name": self.topic, "partitions": [{"partition_index": 0, "committed_offset": 3}]}],
        )
        grant(admin, self.session.host, ROLES[role], self.role)


def run(port: int, roles: tuple[str, ...] = tuple(ROLES)) -> dict[str, dict[str, Any]]:
    """The answers of the broker on this port: role → what was asked → what came back."""
    from penstock.testing.probes.access_requests import REQUESTS

    admin = RoleSession(port, ADMIN_HOST)
    everything_to_admin(admin)
    for kind in (0, 1):  # the first question makes the coordinators' topics
        admin.request("find_coordinator", 4, key_type=kind, coordinator_keys=["any"])
    answers: dict[str, dict[str, Any]] = {}
    try:
        for number, role in enumerate(roles):
            world = World(admin, port, role, number)
            before = state(admin, world)
            answers[role] = {}
            for name, ask in REQUESTS.items():
                try:
                    answers[role][name] = plain(ask(world, world.session), ("coordinators",))
                except ConnectionError:
                    answers[role][name] = CLOSED
                    world.session.close()
            world.session.close()
            if role == "nobody":
                answers[role]["changed nothing"] = before == state(admin, world)
    finally:
        admin.close()
    return answers


def state(admin: RoleSession, world: World) -> Any:
    """All that requests could have changed."""
    topics = sorted(t.name for t in admin.request("metadata", 12, topics=None).topics)
    names = (world.topic, world.other)
    offsets = admin.request(
        "list_offsets",
        7,
        replica_id=-1,
        topics=[{"name": n, "partitions": [{"partition_index": 0, "timestamp": t}]} for n in names for t in (-1,)],
    )
    configs = admin.request(
        "describe_configs",
        4,
        resources=[{"resource_type": 2, "resource_name": n, "configuration_keys": ["retention.ms"]} for n in names],
    )
    acls = admin.request(
        "describe_acls",
        3,
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    groups = admin.request("list_groups", 4)
    quotas = admin.request("describe_client_quotas", 1, components=[], strict=False)
    return [topics, *map(plain, (offsets, configs, acls, groups, quotas))]
