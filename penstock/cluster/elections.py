"""Who leads: the choice for each occasion, and the elections that administrators and the imbalance timer ask for.

A leader is always live and, unless an unclean election is allowed, a member of the ISR or of the ELR; once both are
empty, who led last may lead again (KIP-966). The order of the replica list decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from penstock.cluster.changes import Changes, Decision
from penstock.cluster.eligible import drop_unproven
from penstock.cluster.events import ElectionKind, ElectLeaders, PartitionAnswer, TopicPartition
from penstock.cluster.image import NO_LEADER, PartitionRegistration
from penstock.protocol.errors import ErrorCode


def first_registration(changes: Changes, partition: PartitionRegistration) -> PartitionRegistration:
    """New → Online: the first live replica leads, the live ones are in sync (all are empty). Unchanged if none
    lives."""
    live = tuple(r for r in partition.replicas if changes.can_serve(partition, r))
    if not live:
        return partition
    return replace(partition, leader=live[0], isr=live)


def elect(changes: Changes, partition: PartitionRegistration, *, unclean: bool) -> PartitionRegistration:
    """The current leader while it is in sync, else the next one, else one of the ELR; leader -1 if nobody can."""
    in_sync = [r for r in partition.replicas if r in partition.isr and changes.can_serve(partition, r)]
    if in_sync:
        leader = partition.leader if partition.leader in in_sync else in_sync[0]
        # Members that died are not in sync any more; the order of the ISR is kept.
        isr = tuple(r for r in partition.isr if r in in_sync)
        return replace(partition, leader=leader, isr=isr)
    live = [r for r in partition.replicas if changes.can_serve(partition, r)]
    trusted = [r for r in live if r in partition.eligible]
    if not trusted and not partition.isr and not partition.eligible:
        # Nobody can prove anything any more. Who led last wrote the most; everybody else may lack some of it.
        trusted = [r for r in partition.last_known if r in live]
    if trusted:
        return replace(partition, leader=trusted[0], isr=(trusted[0],))
    if unclean and live:
        return replace(
            partition,
            leader=live[0],
            isr=(live[0],),
            recovering=False,
            eligible=(),
            eligible_epochs=(),
            last_known=(),
        )
    return replace(partition, leader=NO_LEADER)


def elect_offline_partitions(changes: Changes, topics: list[str] | None = None) -> None:
    """Partitions without a leader get one where that is possible now."""
    for where, partition in list(changes.partitions(topics)):
        if partition.leader != NO_LEADER:
            continue
        if partition.partition_epoch < 0 and not partition.isr:
            changed = first_registration(changes, partition)
        else:
            changed = elect(changes, partition, unclean=changes.allows_unclean_election(where[0]))
        if changed != partition:
            changes.put(where, changed)


def elect_leaders(changes: Changes, event: ElectLeaders) -> Decision:
    """ElectLeaders: one answer per asked partition; without a list only what is not ELECTION_NOT_NEEDED is answered."""
    answers: dict[TopicPartition, PartitionAnswer] = {}
    asked = event.partitions
    for where in sorted(set(asked)) if asked is not None else [w for w, _ in changes.partitions()]:
        answer = _elect_one(changes, where, event.kind)
        if asked is not None or answer.error_code != ErrorCode.ELECTION_NOT_NEEDED:
            answers[where] = answer
    return changes.finish(answers)


def _elect_one(changes: Changes, where: TopicPartition, kind: ElectionKind) -> PartitionAnswer:
    topic, index = where
    if changes.topic(topic) is None:
        return PartitionAnswer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {topic}")
    partition = changes.partition(topic, index)
    if partition is None:
        return PartitionAnswer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {topic}-{index}")
    if kind is ElectionKind.PREFERRED:
        preferred = partition.replicas[0]
        if partition.leader == preferred:
            return PartitionAnswer(ErrorCode.ELECTION_NOT_NEEDED, "The preferred replica leads already.")
        if not _can_prefer(changes, partition):
            return PartitionAnswer(
                ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
                f"The preferred replica {preferred} of {topic}-{index} is not alive or not in sync.",
            )
        changes.put(where, elect(changes, replace(partition, leader=preferred), unclean=False))
        return PartitionAnswer(ErrorCode.NONE)
    if partition.leader != NO_LEADER:
        return PartitionAnswer(ErrorCode.ELECTION_NOT_NEEDED, f"Broker {partition.leader} leads already.")
    elected = elect(changes, partition, unclean=True)
    if elected.leader == NO_LEADER:
        return PartitionAnswer(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"No replica of {topic}-{index} is alive.")
    changes.put(where, elected)
    return PartitionAnswer(ErrorCode.NONE)


def _can_prefer(changes: Changes, partition: PartitionRegistration) -> bool:
    preferred = partition.replicas[0]
    return preferred in partition.isr and changes.can_serve(partition, preferred)


def rebalance_leaders(changes: Changes) -> Decision:
    """For each live broker that leads too few of the partitions that prefer it: elect it where it is in sync."""
    preferring: dict[int, list[tuple[TopicPartition, PartitionRegistration]]] = {}
    for where, partition in changes.partitions():
        preferring.setdefault(partition.replicas[0], []).append((where, partition))
    for broker_id, wanted in sorted(preferring.items()):
        if not changes.is_live(broker_id):
            continue
        missing = [(w, p) for w, p in wanted if p.leader != broker_id]
        if len(missing) * 100 <= changes.policy.leader_imbalance_percent * len(wanted):
            continue
        for where, partition in missing:
            if not partition.is_reassigning and partition.leader != NO_LEADER and _can_prefer(changes, partition):
                changes.put(where, elect(changes, replace(partition, leader=broker_id), unclean=False))
    return changes.finish()


def leave_isr(changes: Changes, where: TopicPartition, leaving: Mapping[int, object] | set[int]) -> None:
    """Replicas that are gone (or going) lose leadership and their place in the ISR; below min ISR they are remembered
    as eligible, unless they are back already and cannot prove that they have all they had."""
    partition = changes.partition(*where)
    assert partition is not None
    if partition.partition_epoch < 0:
        return
    rest = tuple(r for r in partition.isr if r not in leaving)
    if rest != partition.isr:
        changes.put(where, replace(partition, isr=rest))
        drop_unproven(changes, where)
    if partition.leader in leaving:
        left = changes.partition(*where)
        assert left is not None
        elected = elect(changes, left, unclean=changes.allows_unclean_election(where[0]))
        changes.put(where, elected, bump=True)
