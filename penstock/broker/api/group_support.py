"""What the group APIs share: who may see or use a group or topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.api.access import allowed, allowed_on_cluster

if TYPE_CHECKING:
    from penstock.broker.api.spec import RequestContext
    from penstock.broker.broker import Broker


def may_read_group(broker: Broker, ctx: RequestContext, group_id: str) -> bool:
    return allowed(broker, ctx, "READ", "GROUP", group_id)


def may_describe_group(broker: Broker, ctx: RequestContext, group_id: str, *, audit: bool = True) -> bool:
    return allowed(broker, ctx, "DESCRIBE", "GROUP", group_id, audit=audit)


def may_delete_group(broker: Broker, ctx: RequestContext, group_id: str) -> bool:
    return allowed(broker, ctx, "DELETE", "GROUP", group_id)


def may_read_topic(broker: Broker, ctx: RequestContext, topic: str) -> bool:
    return allowed(broker, ctx, "READ", "TOPIC", topic)


def may_describe_topic(broker: Broker, ctx: RequestContext, topic: str) -> bool:
    return allowed(broker, ctx, "DESCRIBE", "TOPIC", topic)


def may_list_all_groups(broker: Broker, ctx: RequestContext) -> bool:
    """DESCRIBE on the cluster shows every group."""
    return allowed_on_cluster(broker, ctx, "DESCRIBE", audit=False)
