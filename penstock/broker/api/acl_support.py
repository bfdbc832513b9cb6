"""What the ACL APIs share: filters and bindings as requests carry them, and the answer of a broker without ACLs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.broker.api.access import require_on_cluster
from penstock.broker.api.spec import RequestRefused
from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages import MalformedMessage
from penstock.security.acl_model import AclFilter, Operation, PatternType, Permission, ResourceType

if TYPE_CHECKING:
    from penstock.broker.api.spec import RequestContext
    from penstock.broker.broker import Broker
    from penstock.security.acl_store import AclStore


def acl_store(broker: Broker, ctx: RequestContext, operation: str) -> AclStore:
    """The ACLs, for somebody who may do that with them. Raises RequestRefused."""
    require_on_cluster(broker, ctx, operation)
    if broker.acls is None:
        raise RequestRefused(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    return broker.acls


def filter_of(asked: Any) -> AclFilter | None:
    """None if a part of it is not known to this release. Raises MalformedMessage for what is no filter at all."""
    kinds = (asked.resource_type_filter, asked.pattern_type_filter, asked.operation, asked.permission_type)
    refuse_unknown(*kinds)
    if not all_known(*kinds):
        return None
    return AclFilter(
        ResourceType(asked.resource_type_filter),
        asked.resource_name_filter,
        PatternType(asked.pattern_type_filter),
        asked.principal_filter,
        asked.host_filter,
        Operation(asked.operation),
        Permission(asked.permission_type),
    )


def refuse_unknown(*numbers: int) -> None:
    """Zero says that the sender itself does not know what it means: Kafka closes such a connection."""
    if 0 in numbers:
        raise MalformedMessage("an ACL with unknown elements")


def all_known(resource_type: int, pattern_type: int, operation: int, permission: int) -> bool:
    return (
        0 < resource_type <= max(ResourceType)
        and 0 < pattern_type <= max(PatternType)
        and 0 < operation <= max(Operation)
        and 0 < permission <= max(Permission)
    )
