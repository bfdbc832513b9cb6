"""Replicas on the move and leaders elected: what is unusual, moves submitted, throttled and called off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.operate import admin
from penstock.operate.errors import no_partition
from penstock.protocol import messages

if TYPE_CHECKING:
    from penstock.client.metadata import ClusterView
    from penstock.operate.session import Session

Plan = dict[tuple[str, int], list[int]]
Moves = dict[tuple[str, int], tuple[list[int], list[int]]]  # replicas that are added, and removed
NO_REASSIGNMENT, ELECTION_NOT_NEEDED = 85, 84
THROTTLES = ("leader.replication.throttled", "follower.replication.throttled")


def unusual_partitions(
    session: Session, topic: str | None = None, known: ClusterView | None = None, under_way: Moves | None = None
) -> list[dict[str, Any]]:
    """Partitions that move, miss replicas, or have no leader; of what is `known` only those that move are asked for."""
    if topic is not None:
        admin.topic(session, topic)
    if under_way is None:
        under_way = moving(session)
    if known is None:
        known = admin.cluster(session)
    elif under_way:
        asked = session.client.metadata({name for name, _ in under_way})
        known = known.merged_with(asked, all_topics=False)
    rows = []
    for view in known.topics.values():
        for index, p in view.partitions.items():
            moves = under_way.get((view.name, index))
            state = "moving" if moves else "offline" if p.leader_id < 0 else "under-replicated"
            if (topic is None or view.name == topic) and (moves or p.leader_id < 0 or len(p.isr) < len(p.replicas)):
                rows.append(
                    {
                        "topic": view.name,
                        "partition": index,
                        "state": state,
                        "leader": p.leader_id if p.leader_id >= 0 else None,
                        "replicas": list(p.replicas),
                        "isr": list(p.isr),
                        "adding": moves[0] if moves else [],
                        "removing": moves[1] if moves else [],
                    }
                )
    return rows


def moving(session: Session) -> Moves:
    api = messages.api("list_partition_reassignments")
    answer = session.client.call_controller("list_partition_reassignments", api.Request(topics=None, timeout_ms=10_000))
    if answer.error_code:
        raise admin.refuse(answer.error_code, "reassignments", answer.error_message)
    return {
        (t.name, p.partition_index): (p.adding_replicas, p.removing_replicas)
        for t in answer.topics
        for p in t.partitions
    }


def elect_leaders(
    session: Session, topic: str | None = None, partitions: list[int] | None = None, unclean: bool = False
) -> list[dict[str, Any]]:
    """Give leadership back to the preferred replicas; how it went per partition."""
    api = messages.api("elect_leaders")
    chosen = None
    if topic is not None:
        known = admin.topic(session, topic).partitions
        for index in partitions or ():
            if index not in known:
                raise no_partition(topic, index, known)
        indexes = partitions or sorted(known)
        chosen = [api.TopicPartitions(topic=topic, partitions=indexes)]
    request = api.Request(election_type=int(unclean), topic_partitions=chosen, timeout_ms=30_000)
    answer = session.client.call_controller("elect_leaders", request)
    if answer.error_code:
        raise admin.refuse(answer.error_code, "election")
    return [
        {"topic": t.topic, "partition": p.partition_id, "result": _result(p)}
        for t in answer.replica_election_results
        for p in t.partition_result
        if p.error_code != ELECTION_NOT_NEEDED or chosen is not None
    ]


def _result(row: Any) -> str:
    if row.error_code == 0:
        return "elected"
    return (
        "already preferred" if row.error_code == ELECTION_NOT_NEEDED else admin.refuse(row.error_code, "").message[2:]
    )


def current_replicas(session: Session, plan: Plan) -> Plan:
    """Where the partitions of a plan are now; all of them must exist."""
    current = {}
    for name, index in plan:
        known = admin.topic(session, name).partitions
        if index not in known:
            raise no_partition(name, index, known)
        current[name, index] = list(known[index].replicas)
    return current


def submit(session: Session, plan: dict[tuple[str, int], Any]) -> None:
    """Start moves; None instead of replicas calls a partition's move off."""
    api = messages.api("alter_partition_reassignments")
    topics: dict[str, list[Any]] = {}
    for (name, index), replicas in plan.items():
        topics.setdefault(name, []).append(api.ReassignablePartition(partition_index=index, replicas=replicas))
    rows = [api.ReassignableTopic(name=name, partitions=partitions) for name, partitions in topics.items()]
    request = api.Request(topics=rows, timeout_ms=30_000)
    answer = session.client.call_controller("alter_partition_reassignments", request)
    if answer.error_code:
        raise admin.refuse(answer.error_code, "reassignment", answer.error_message)
    for t in answer.responses:
        for p in t.partitions:
            if p.error_code and p.error_code != NO_REASSIGNMENT:
                raise admin.refuse(p.error_code, f"{t.name}-{p.partition_index}", p.error_message)


def throttle_moves(session: Session, changed: Plan, current: Plan, rate: int) -> None:
    """Only the moving replicas are throttled: sources on the leaders' side, targets on the followers'."""
    for name in {name for name, _ in changed}:
        sources = [f"{i}:{node}" for (t, i) in changed if t == name for node in current[t, i]]
        targets = [
            f"{i}:{node}" for (t, i), new in changed.items() if t == name for node in new if node not in current[t, i]
        ]
        values = (",".join(sources), ",".join(targets))
        changes = [(f"{key}.replicas", 0, value) for key, value in zip(THROTTLES, values, strict=True)]
        admin.alter_configs(session, admin.TOPIC_RESOURCE, name, changes)
    for node in admin.live_brokers(session):
        admin.alter_configs(
            session, admin.BROKER_RESOURCE, str(node), [(f"{key}.rate", 0, str(rate)) for key in THROTTLES]
        )


def unthrottle(session: Session, topics: set[str]) -> None:
    for name in topics:
        admin.alter_configs(session, admin.TOPIC_RESOURCE, name, [(f"{key}.replicas", 1, None) for key in THROTTLES])
    for node in admin.live_brokers(session):
        admin.alter_configs(session, admin.BROKER_RESOURCE, str(node), [(f"{key}.rate", 1, None) for key in THROTTLES])
