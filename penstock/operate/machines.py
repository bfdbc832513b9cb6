"""Machines: which brokers share one (`penstock.machine`), and which topics would lose several copies with it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from penstock.operate import admin
from penstock.protocol import messages

if TYPE_CHECKING:
    from penstock.client.metadata import ClusterView
    from penstock.operate.session import Session

SETTING = "penstock.machine"


def machines(session: Session) -> dict[int, str]:
    """The machine of each broker that names one; nothing from a cluster that knows no machines or does not tell."""
    api = messages.api("describe_configs")
    named = {}
    for node in admin.live_brokers(session):
        resource = api.DescribeConfigsResource(
            resource_type=admin.BROKER_RESOURCE, resource_name=str(node), configuration_keys=[SETTING]
        )
        result = session.client.call_broker(node, "describe_configs", api.Request(resources=[resource])).results[0]
        value = next((c.value for c in result.configs if c.name == SETTING), None)
        if value:
            named[node] = value
    return named


def by_machine(machine_of: Mapping[int, str]) -> dict[str, list[int]]:
    """The brokers of each machine."""
    brokers: dict[str, list[int]] = defaultdict(list)
    for node, machine in sorted(machine_of.items()):
        brokers[machine].append(node)
    return dict(sorted(brokers.items()))


def close_together(replicas: list[int], machine_of: Mapping[int, str]) -> bool:
    """Whether two of these replicas stand on one machine."""
    named = [machine_of[node] for node in replicas if node in machine_of]
    return len(set(named)) < len(named)


def shared_machines(session: Session) -> Iterator[tuple[str, str, str]]:
    """The doctor's look: topics some of whose copies would go together."""
    machine_of = machines(session)
    if not machine_of:
        return
    view: ClusterView = admin.cluster(session)
    together = sorted(
        name
        for name, topic in view.topics.items()
        if any(close_together(list(p.replicas), machine_of) for p in topic.partitions.values())
    )
    if not together:
        return
    count = len(set(machine_of.values())) + sum(node not in machine_of for node in view.brokers)
    some = ", ".join(together[:3]) + (", …" if len(together) > 3 else "")
    yield (
        "warning",
        f"copies that stand on one machine (of {count}): topics {some}",
        "a machine's loss takes those copies at once; add machines, then `penstock partition reassign`",
    )
