"""Probes of groups and transactions: what a coordinator answers to the unknown, the stale and the odd."""

from __future__ import annotations

import time
import uuid
from typing import Any

from penstock.protocol import messages
from penstock.testing.probes.harness import Session, probe

RETRY = (14, 15, 16, 51)  # loading, not available, not coordinator, concurrent transactions


def settled(session: Session, api_name: str, version: int, request: Any, code: Any) -> Any:
    """Ask until the coordinator has loaded: how long that takes may differ, the answer may not."""
    deadline = time.monotonic() + 20
    while True:
        answer = session.call(api_name, version, request)
        if code(answer) not in RETRY or time.monotonic() > deadline:
            return answer
        time.sleep(0.1)


def group_id() -> str:
    return f"g-{uuid.uuid4().hex[:8]}"


def ready_group(session: Session) -> str:
    group = group_id()
    api = messages.api("find_coordinator").load_all_versions()
    settled(session, "find_coordinator", 3, api.Request(key=group, key_type=0), lambda a: a.error_code)
    offsets = messages.api(
        "offset_fetch"
    ).load_all_versions()  # a heartbeat is no witness: Kafka says yes while it loads
    settled(session, "offset_fetch", 7, offsets.Request(group_id=group, topics=None), lambda a: a.error_code)
    return group


for _version in range(7):

    @probe(f"find coordinator v{_version}")
    def _find(session: Session, version: int = _version) -> Any:
        api = messages.api("find_coordinator").load_all_versions()
        if version >= 4:
            request = api.Request(key_type=0, coordinator_keys=["a", "b"])
            answer = settled(
                session, "find_coordinator", version, request, lambda a: max(c.error_code for c in a.coordinators)
            )
            return [c.error_code for c in answer.coordinators]
        answer = settled(session, "find_coordinator", version, api.Request(key="a", key_type=0), lambda a: a.error_code)
        return answer.error_code


@probe("find coordinator: an unknown key type")
def _find_type(session: Session) -> Any:
    api = messages.api("find_coordinator")
    return [
        c.error_code
        for c in session.call("find_coordinator", 4, api.Request(key_type=9, coordinator_keys=["a"])).coordinators
    ]


for _version in range(5):

    @probe(f"heartbeat v{_version}: an unknown group")
    def _heartbeat(session: Session, version: int = _version) -> Any:
        group = ready_group(session)
        request = messages.api("heartbeat").Request(group_id=group, generation_id=1, member_id="m")
        return session.call("heartbeat", version, request).error_code


JOINS: dict[str, dict[str, Any]] = {
    "without a member id": {},
    "an unknown member id": {"member_id": "nobody"},
    "an empty group id": {"group_id": ""},
    "a session time-out too short": {"session_timeout_ms": 10},
    "a session time-out too long": {"session_timeout_ms": 10**8},
    "no protocols": {"protocols": []},
    "no protocol type": {"protocol_type": ""},
}
for _label, _more in JOINS.items():

    @probe(f"join group: {_label}")
    def _join(session: Session, more: dict[str, Any] = _more) -> Any:
        api = messages.api("join_group")
        protocol = api.JoinGroupRequestProtocol(name="range", metadata=b"")
        fields = {
            "group_id": ready_group(session),
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [protocol],
            **more,
        }
        answer = session.call("join_group", 7, api.Request(**fields))
        return answer.error_code, bool(answer.member_id)


@probe("sync group: an unknown member")
def _sync(session: Session) -> Any:
    request = messages.api("sync_group").Request(group_id=ready_group(session), generation_id=1, member_id="m")
    return session.call("sync_group", 4, request).error_code


@probe("leave group: unknown members")
def _leave(session: Session) -> Any:
    api = messages.api("leave_group")
    members = [api.MemberIdentity(member_id="a"), api.MemberIdentity(member_id="b", group_instance_id="i")]
    answer = session.call("leave_group", 4, api.Request(group_id=ready_group(session), members=members))
    return answer.error_code, [m.error_code for m in answer.members]


def commit(session: Session, group: str, topic: str, version: int = 8, partition: int = 0, **more: Any) -> Any:
    api = messages.api("offset_commit").load_all_versions()
    row = api.request_struct("OffsetCommitRequestPartition")(
        partition_index=partition,
        committed_offset=more.pop("offset", 5),
        committed_metadata=more.pop("metadata", "note"),
    )
    wanted = api.request_struct("OffsetCommitRequestTopic")(name=topic, partitions=[row])
    fields = {"generation_id_or_member_epoch": -1, "member_id": "", **more}
    request = api.Request(group_id=group, topics=[wanted], **fields)
    return [p.error_code for t in session.call("offset_commit", version, request).topics for p in t.partitions]


def fetch_offsets(session: Session, group: str, topics: dict[str, list[int]] | None, version: int = 7) -> Any:
    api = messages.api("offset_fetch").load_all_versions()
    if version >= 8:
        row = api.request_struct("OffsetFetchRequestTopics")
        wanted = None if topics is None else [row(name=name, partition_indexes=p) for name, p in topics.items()]
        request = api.Request(groups=[api.request_struct("OffsetFetchRequestGroup")(group_id=group, topics=wanted)])
        answer = session.call("offset_fetch", version, request).groups[0]
    else:
        row = api.request_struct("OffsetFetchRequestTopic")
        wanted = None if topics is None else [row(name=name, partition_indexes=p) for name, p in topics.items()]
        answer = session.call("offset_fetch", version, api.Request(group_id=group, topics=wanted))
    rows = [
        (p.partition_index, p.committed_offset, p.metadata, p.error_code, p.committed_leader_epoch)
        for t in answer.topics
        for p in t.partitions
    ]
    return answer.error_code, sorted(rows)


for _version in range(2, 10):

    @probe(f"offset commit v{_version} and fetch")
    def _commit(session: Session, version: int = _version) -> Any:
        topic, group = session.topic(2), ready_group(session)
        done = commit(session, group, topic, version)
        return done, fetch_offsets(session, group, {topic: [0, 1]}), fetch_offsets(session, group, None)


for _version in range(1, 10):

    @probe(f"offset fetch v{_version}: a group that never was")
    def _fetch_unknown(session: Session, version: int = _version) -> Any:
        topic = session.topic()
        return fetch_offsets(session, ready_group(session), {topic: [0]}, version)


COMMITS: dict[str, dict[str, Any]] = {
    "an unknown partition": {"partition": 7},
    "metadata too large": {"metadata": "x" * 5000},
    "a generation of a group without members": {"generation_id_or_member_epoch": 3, "member_id": "m"},
    "a negative offset": {"offset": -5},
    "an empty group id": {"group": ""},
}
for _label, _more in COMMITS.items():

    @probe(f"offset commit: {_label}")
    def _commits(session: Session, more: dict[str, Any] = _more) -> Any:
        topic = session.topic()
        fields = dict(more)
        group = fields.pop("group", None)
        return commit(session, ready_group(session) if group is None else group, topic, **fields)


@probe("offset commit: an unknown topic")
def _commit_unknown(session: Session) -> Any:
    return commit(session, ready_group(session), "never-created")


@probe("describe, list and delete groups: simple, unknown")
def _groups(session: Session) -> Any:
    topic, group = session.topic(), ready_group(session)
    commit(session, group, topic)
    describe = messages.api("describe_groups")
    answer = session.call("describe_groups", 5, describe.Request(groups=[group, "unknown-group"]))
    described = sorted(
        (g.group_id == group, g.error_code, g.group_state, g.protocol_type, len(g.members)) for g in answer.groups
    )
    listing = messages.api("list_groups")
    listed = session.call("list_groups", 5, listing.Request(states_filter=[], types_filter=[]))
    found = [(g.protocol_type, g.group_state, g.group_type) for g in listed.groups if g.group_id == group]
    delete = messages.api("delete_groups")
    answer = session.call("delete_groups", 2, delete.Request(groups_names=[group, "unknown-group"]))
    deleted = sorted((r.group_id == group, r.error_code) for r in answer.results)
    return described, found, deleted, fetch_offsets(session, group, {topic: [0]})


@probe("offset delete: a simple group")
def _offset_delete(session: Session) -> Any:
    topic, group = session.topic(2), ready_group(session)
    commit(session, group, topic)
    api = messages.api("offset_delete")
    rows = [api.request_struct("OffsetDeleteRequestPartition")(partition_index=p) for p in (0, 1)]
    wanted = api.request_struct("OffsetDeleteRequestTopic")(name=topic, partitions=rows)
    answer = session.call("offset_delete", 0, api.Request(group_id=group, topics=[wanted]))
    codes = [p.error_code for t in answer.topics for p in t.partitions]
    return answer.error_code, codes, fetch_offsets(session, group, {topic: [0]})


def transactional(session: Session, timeout_ms: int = 60_000, version: int = 4) -> tuple[str, Any]:
    name = f"t-{uuid.uuid4().hex[:8]}"
    find = messages.api("find_coordinator").load_all_versions()
    settled(session, "find_coordinator", 3, find.Request(key=name, key_type=1), lambda a: a.error_code)
    api = messages.api("init_producer_id")
    request = api.Request(transactional_id=name, transaction_timeout_ms=timeout_ms)
    return name, settled(session, "init_producer_id", version, request, lambda a: a.error_code)


for _timeout in (0, -1, 10**9, 1000):

    @probe(f"init producer id: transaction time-out {_timeout}")
    def _timeout_probe(session: Session, timeout: int = _timeout) -> Any:
        _, answer = transactional(session, timeout)
        return answer.error_code, answer.producer_epoch


@probe("end transaction: nothing begun, wrong id, wrong epoch")
def _end(session: Session) -> Any:
    name, producer = transactional(session)
    api = messages.api("end_txn")
    cases = [
        (name, producer.producer_id, 0),
        (name, producer.producer_id + 1000, 0),
        (name, producer.producer_id, 9),
        ("nobody", 1, 0),
    ]
    answers = []
    for version in (2, 4):
        for transactional_id, pid, epoch in cases:
            request = api.Request(
                transactional_id=transactional_id, producer_id=pid, producer_epoch=epoch, committed=True
            )
            answers.append(settled(session, "end_txn", version, request, lambda a: a.error_code).error_code)
    return answers


@probe("add partitions: good, unknown topic, wrong epoch")
def _add(session: Session) -> Any:
    topic = session.topic(2)
    name, producer = transactional(session)
    api = messages.api("add_partitions_to_txn").load_all_versions()
    answers = []
    for wanted, epoch in ((topic, 0), ("never-created", 0), (topic, 5)):
        row = api.AddPartitionsToTxnTopic(name=wanted, partitions=[0, 1])
        request = api.Request(
            v3_and_below_transactional_id=name, v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=epoch, v3_and_below_topics=[row],
        )  # fmt: skip
        answer = session.call("add_partitions_to_txn", 3, request)
        answers.append(
            [p.partition_error_code for t in answer.results_by_topic_v3_and_below for p in t.results_by_partition]
        )
    return answers


@probe("describe and list transactions")
def _transactions(session: Session) -> Any:
    name, _ = transactional(session)
    describe = messages.api("describe_transactions")
    answer = session.call("describe_transactions", 0, describe.Request(transactional_ids=[name, "nobody"]))
    described = [(s.error_code, s.transaction_state, s.transaction_timeout_ms) for s in answer.transaction_states]
    listing = messages.api("list_transactions")
    listed = session.call(
        "list_transactions",
        1,
        listing.Request(state_filters=["Empty", "Nonsense"], producer_id_filters=[], duration_filter=-1),
    )
    mine = [s.transaction_state for s in listed.transaction_states if s.transactional_id == name]
    return described, listed.error_code, listed.unknown_state_filters, mine
