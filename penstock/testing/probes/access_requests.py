"""The requests of `access`: each client API once or more, about what the role may use and about what it may not.

`{topic}` and the like stand for the names in the role's world. Those that delete come last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.testing.probes.access import RoleSession, World
from penstock.testing.probes.harness import plain
from penstock.testing.probes.records import batch

Ask = Callable[[World, RoleSession], Any]
REQUESTS: dict[str, Ask] = {}

BOTH = ("{topic}", "{other}")
ANY_ACL = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


def asks(name: str, api: str, version: int, **values: Any) -> None:
    if name in REQUESTS:
        raise ValueError(f"two requests are named {name!r}")

    def ask(world: World, session: RoleSession) -> Any:
        answer = session.request(api, version, **_filled(values, world))
        return _sorted(answer)

    REQUESTS[name] = ask


def _filled(value: Any, world: World) -> Any:
    if isinstance(value, dict):
        return {key: _filled(item, world) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_filled(item, world) for item in value]
    if isinstance(value, str):
        if value.startswith("id of "):
            return world.ids[_filled(value[6:], world)]
        return value.format(
            topic=world.topic,
            other=world.other,
            group=world.group,
            transactional_id=world.transactional_id,
            role=world.role,
        )
    return value


def _sorted(answer: Any) -> Any:
    """Answers come in any order of topics; the order says nothing."""
    for name in (
        "results_by_topic_v3_and_below", "topics", "responses", "results", "groups", "transaction_states",
        "config_resources", "resources",
    ):  # fmt: skip
        rows = answer.__dict__.get(name)
        if isinstance(rows, list):
            rows.sort(key=lambda row: repr(plain(row)))
    return answer


def _partitions(topics: tuple[str, ...], key: str = "name", **row: Any) -> list[dict[str, Any]]:
    return [{key: topic, "partitions": [row]} for topic in topics]


def _records(topics: tuple[str, ...], key: str = "name", **options: Any) -> list[dict[str, Any]]:
    return [
        {key: topic, "partition_data": [{"index": 0, "records": bytes(batch(timestamp=1_700_000_000_000, **options))}]}
        for topic in topics
    ]


IDS = ("id of {topic}", "id of {other}")

asks("produce", "produce", 9, acks=-1, timeout_ms=3000, topic_data=_records((*BOTH, "missing")))
asks("produce by id", "produce", 13, acks=-1, timeout_ms=3000, topic_data=_records(IDS, "topic_id"))
asks(
    "produce to an internal topic", "produce", 9, acks=1, timeout_ms=3000, topic_data=_records(("__consumer_offsets",))
)
asks(
    "produce in a transaction",
    "produce",
    9,
    transactional_id="{transactional_id}",
    acks=-1,
    timeout_ms=3000,
    topic_data=_records(("{other}",), producer_id=77_000_000, producer_epoch=0, base_sequence=0, transactional=True),
)
_FETCH = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 100_000, "session_epoch": -1}
_FETCHED = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "partition_max_bytes": 1}
asks("fetch", "fetch", 12, **_FETCH, topics=_partitions((*BOTH, "missing"), "topic", **_FETCHED))
asks("fetch by id", "fetch", 13, **_FETCH, topics=_partitions(IDS, "topic_id", **_FETCHED))
asks(
    "fetch of an internal topic",
    "fetch",
    12,
    **_FETCH,
    topics=_partitions(("__consumer_offsets",), "topic", **_FETCHED),
)
asks(
    "list offsets",
    "list_offsets",
    7,
    replica_id=-1,
    topics=_partitions((*BOTH, "missing"), partition_index=0, timestamp=-2),
)
for _topic in (*BOTH, "missing", "auto-{role}"):
    for _create in (False, True):
        asks(
            f"metadata of {_topic}, create: {_create}",
            "metadata",
            8,
            topics=[{"name": _topic}],
            allow_auto_topic_creation=_create,
            include_cluster_authorized_operations=True,
            include_topic_authorized_operations=True,
        )
# One request is a few lines: a formatter would make it twenty.
# fmt: off
asks("metadata by id", "metadata", 12, topics=[{"topic_id": i, "name": None} for i in IDS])
asks("offset commit", "offset_commit", 8, group_id="{group}", generation_id_or_member_epoch=-1,
     topics=_partitions((*BOTH, "missing"), partition_index=0, committed_offset=5))
asks("offset fetch", "offset_fetch", 8,
     groups=[{"group_id": "{group}", "topics": [{"name": t, "partition_indexes": [0]} for t in BOTH]}])
asks("offset fetch of all", "offset_fetch", 7, group_id="{group}", topics=None)
asks("find a group's coordinator", "find_coordinator", 4, key_type=0, coordinator_keys=["{group}"])
asks("find a transaction's coordinator", "find_coordinator", 4, key_type=1, coordinator_keys=["{transactional_id}"])
asks("join group", "join_group", 5, group_id="{group}", session_timeout_ms=10_000, rebalance_timeout_ms=10_000,
     protocol_type="consumer", protocols=[{"name": "range", "metadata": b""}])
asks("sync group", "sync_group", 3, group_id="{group}", generation_id=1, member_id="m")
asks("heartbeat", "heartbeat", 3, group_id="{group}", generation_id=1, member_id="m")
asks("leave group", "leave_group", 3, group_id="{group}", members=[{"member_id": "m"}])
asks("describe groups", "describe_groups", 5, groups=["{group}"], include_authorized_operations=True)
asks("delete offsets", "offset_delete", 0, group_id="{group}", topics=_partitions(("{other}",), partition_index=0))
asks("consumer group heartbeat", "consumer_group_heartbeat", 1, group_id="c-{group}", member_id="m", member_epoch=0,
     rebalance_timeout_ms=1000, subscribed_topic_names=["{topic}"], topic_partitions=[])
asks("consumer group describe", "consumer_group_describe", 1, group_ids=["{group}"], include_authorized_operations=True)
asks("create topics", "create_topics", 7, timeout_ms=5000,
     topics=[{"name": n, "num_partitions": 1, "replication_factor": 1} for n in ("new-{role}", "new2-{role}")],
     validate_only=True)
asks("create partitions", "create_partitions", 3, timeout_ms=5000, validate_only=True,
     topics=[{"name": name, "count": 2, "assignments": None} for name in (*BOTH, "missing")])
asks("describe configs of topics", "describe_configs", 4, resources=[
     {"resource_type": 2, "resource_name": n, "configuration_keys": ["retention.ms"]} for n in (*BOTH, "missing")])
asks("describe configs of a broker and a group", "describe_configs", 4, resources=[
     {"resource_type": 4, "resource_name": "1", "configuration_keys": ["queued.max.requests"]},
     {"resource_type": 32, "resource_name": "{group}", "configuration_keys": ["consumer.session.timeout.ms"]}])
asks("alter configs", "alter_configs", 2, validate_only=False, resources=[
     {"resource_type": 2, "resource_name": n, "configs": [{"name": "retention.ms", "value": "50000"}]}
     for n in (*BOTH, "missing")])
asks("alter configs incrementally", "incremental_alter_configs", 1, validate_only=False, resources=[
     {"resource_type": kind, "resource_name": n, "configs": [{"name": key, "config_operation": 0, "value": "50000"}]}
     for kind, n, key in (*((2, topic, "retention.ms") for topic in (*BOTH, "missing")),
                          (4, "1", "log.retention.ms"), (32, "{group}", "consumer.session.timeout.ms"))])
asks("alter replica log dirs", "alter_replica_log_dirs", 2,
     dirs=[{"path": "/nowhere", "topics": [{"name": "{topic}", "partitions": [0]}]}])
asks("describe log dirs", "describe_log_dirs", 4, topics=[])
asks("elect leaders", "elect_leaders", 2, election_type=0, timeout_ms=5000,
     topic_partitions=[{"topic": "{topic}", "partitions": [0]}])
asks("alter reassignments", "alter_partition_reassignments", 0, timeout_ms=5000,
     topics=_partitions(("{topic}",), partition_index=0, replicas=None))
asks("list reassignments", "list_partition_reassignments", 0, timeout_ms=5000,
     topics=[{"name": "{topic}", "partition_indexes": [0]}])
asks("describe cluster", "describe_cluster", 0, include_cluster_authorized_operations=True)
asks("init producer id", "init_producer_id", 4, transactional_id=None, transaction_timeout_ms=1000,
     producer_id=-1, producer_epoch=-1)
asks("init producer id of a transaction", "init_producer_id", 4, transactional_id="{transactional_id}",
     transaction_timeout_ms=10_000, producer_id=-1, producer_epoch=-1)
_PAIR = {"transactional_id": "{transactional_id}", "producer_id": 77_000_000, "producer_epoch": 0}
asks("add partitions to a transaction", "add_partitions_to_txn", 3,
     **{f"v3_and_below_{key}": value for key, value in _PAIR.items()},
     v3_and_below_topics=[{"name": n, "partitions": [0]} for n in (*BOTH, "missing")])
asks("add offsets to a transaction", "add_offsets_to_txn", 3, **_PAIR, group_id="{group}")
asks("commit offsets in a transaction", "txn_offset_commit", 3, **_PAIR, group_id="{group}", generation_id=-1,
     topics=_partitions(("{other}", "missing"), partition_index=0, committed_offset=5))
asks("end a transaction", "end_txn", 3, **_PAIR, committed=True)
asks("write transaction markers", "write_txn_markers", 1, markers=[
     {"producer_id": 77, "producer_epoch": 0, "transaction_result": False, "coordinator_epoch": 0,
      "topics": [{"name": "missing", "partition_indexes": [0]}]}])
asks("offset for leader epoch", "offset_for_leader_epoch", 4, replica_id=-1, topics=_partitions(
     (*BOTH, "missing"), "topic", partition=0, current_leader_epoch=-1, leader_epoch=0))
asks("describe producers", "describe_producers", 0, topics=[{"name": n, "partition_indexes": [0]} for n in BOTH])
asks("describe transactions", "describe_transactions", 0, transactional_ids=["{transactional_id}"])
asks("describe topic partitions", "describe_topic_partitions", 0,
     topics=[{"name": n} for n in (*BOTH, "missing")], response_partition_limit=100, cursor=None)
asks("list config resources", "list_config_resources", 1, resource_types=[32])
asks("describe quotas", "describe_client_quotas", 1, components=[], strict=False)
asks("alter quotas", "alter_client_quotas", 1, validate_only=False, entries=[
     {"entity": [{"entity_type": "user", "entity_name": "anna"}],
      "ops": [{"key": "producer_byte_rate", "value": 1000.0, "remove": False}]}])
asks("describe acls of no topic", "describe_acls", 3, **ANY_ACL | {"resource_name_filter": "nothing has this name"})
asks("create acls", "create_acls", 3, creations=[
     {"resource_type": 2, "resource_name": "acl-{role}", "resource_pattern_type": 3, "principal": "User:anna",
      "host": "*", "operation": 3, "permission_type": 3}])
asks("delete acls", "delete_acls", 3, filters=[ANY_ACL | {"resource_name_filter": "acl-{role}"}])
asks("delete records", "delete_records", 2, timeout_ms=5000,
     topics=_partitions((*BOTH, "missing"), partition_index=0, offset=0))
asks("delete groups", "delete_groups", 2, groups_names=["{group}"])
asks("delete topics", "delete_topics", 5, timeout_ms=5000, topic_names=["{other}", "missing"])
asks("delete topics by id", "delete_topics", 6, timeout_ms=5000,
     topics=[{"name": None, "topic_id": i} for i in IDS])


def _listed(world: World, answer: Any, names: tuple[str, ...]) -> list[str]:
    mine = {world.topic, world.other, world.group, world.transactional_id}
    return sorted(name for row in answer for name in (getattr(row, names[0]),) if name in mine)


def _lists(name: str, ask: Ask) -> None:
    REQUESTS[name] = ask


_lists("all topics", lambda w, s: _listed(w, s.request("metadata", 12, topics=None).topics, ("name",)))
_lists("all groups", lambda w, s: _listed(w, s.request("list_groups", 4).groups, ("group_id",)))
_lists("all transactions", lambda w, s: _listed(
    w, s.request("list_transactions", 0).transaction_states, ("transactional_id",)))
