"""What the group APIs share: who may see or use a group or topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.broker.api.spec import RequestContext
    from penstock.broker.broker import Broker


def may_read_group(broker: Broker, ctx: RequestContext, group_id: str) -> bool:
    return broker.security is None or bool(broker.security.authorize(ctx, "READ", "GROUP", group_id))


def may_describe_group(broker: Broker, ctx: RequestContext, group_id: str) -> bool:
    return broker.security is None or bool(broker.security.authorize(ctx, "DESCRIBE", "GROUP", group_id))


def may_delete_group(broker: Broker, ctx: RequestContext, group_id: str) -> bool:
    return broker.security is None or bool(broker.security.authorize(ctx, "DELETE", "GROUP", group_id))


def may_read_topic(broker: Broker, ctx: RequestContext, topic: str) -> bool:
    return broker.security is None or bool(broker.security.authorize(ctx, "READ", "TOPIC", topic))


def may_describe_topic(broker: Broker, ctx: RequestContext, topic: str) -> bool:
    return broker.security is None or bool(broker.security.authorize(ctx, "DESCRIBE", "TOPIC", topic))


def may_list_all_groups(broker: Broker, ctx: RequestContext) -> bool:
    """DESCRIBE on the cluster shows every group."""
    return broker.security is None or bool(broker.security.authorize(ctx, "DESCRIBE", "CLUSTER", "kafka-cluster"))
