"""Eligible leader replicas (KIP-966): who has everything that was committed although it is not in the ISR.

While the ISR is smaller than min.insync.replicas nothing is committed, so whoever was in the ISR before still has all
that ever was. Such replicas are remembered with the broker epoch under which they were in sync, and may lead, as long
as their broker can prove that it did not lose what it had: it never stopped, or it stopped in peace.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.cluster.image import NO_LEADER, BrokerRegistration, PartitionRegistration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.cluster.changes import Changes
    from penstock.cluster.events import TopicPartition


def kept_its_logs(broker: BrokerRegistration, epoch: int) -> bool:
    """Whether the logs of this broker are those that it had when it was registered under `epoch`: the same process
    lives on (in another session of the store), or the process of that time stopped in peace and this one followed."""
    if epoch < 0:
        return False
    first = broker.epoch if broker.incarnation < 0 else broker.incarnation
    return first <= epoch <= broker.epoch or 0 <= broker.clean_since <= epoch <= broker.clean_stop


def remember_eligible(
    now: PartitionRegistration | None,
    wanted: PartitionRegistration,
    min_isr: int,
    epochs: Mapping[int, int],
) -> PartitionRegistration:
    """`wanted` with its ELR: below min ISR those who leave the ISR of `now` join it, at or above min ISR it is empty.
    `epochs` are the registrations under which the members of that ISR were in sync."""
    wanted = replace(wanted, min_isr=min_isr)
    if len(wanted.isr) >= min_isr:
        return replace(wanted, eligible=(), eligible_epochs=(), last_known=())
    members = dict(zip(wanted.eligible, wanted.eligible_epochs, strict=True))
    if now is not None:
        if now.min_isr not in (0, min_isr) and now.leader != NO_LEADER:
            # Kafka's rule. Without a leader nobody commits, and clearing would only leave nobody to wait for.
            members.clear()
        members |= {r: epochs.get(r, -1) for r in now.isr if r not in members}
        if now.isr and not wanted.isr:
            wanted = replace(wanted, last_known=now.isr if now.leader == NO_LEADER else (now.leader,))
    kept = {
        r: epoch
        for r, epoch in sorted(members.items())
        if r in wanted.replicas and r not in wanted.isr and r not in wanted.offline
    }
    last_known = tuple(r for r in wanted.last_known if r in wanted.replicas)
    return replace(wanted, eligible=tuple(kept), eligible_epochs=tuple(kept.values()), last_known=last_known)


def drop_unproven(changes: Changes, where: TopicPartition) -> None:
    """Members of the ELR whose brokers are back without proof leave it; those with proof are noted under their present
    registration."""
    partition = changes.partition(*where)
    assert partition is not None
    if not partition.eligible:
        return
    members: dict[int, int] = {}
    for replica, epoch in zip(partition.eligible, partition.eligible_epochs, strict=True):
        broker = changes.brokers.get(replica)
        if broker is None:
            members[replica] = epoch
        elif kept_its_logs(broker, epoch):
            members[replica] = broker.epoch
    if tuple(members.items()) != tuple(zip(partition.eligible, partition.eligible_epochs, strict=True)):
        changes.put(where, replace(partition, eligible=tuple(members), eligible_epochs=tuple(members.values())))
