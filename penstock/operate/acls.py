"""ACLs of a cluster: resources as people write them, listing, changing, and why somebody may or may not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.operate import admin
from penstock.operate.errors import usage_error
from penstock.protocol import messages
from penstock.security.acl_model import (
    CLUSTER_NAME,
    WILDCARD,
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    supported_operations,
)
from penstock.security.acls import AclSet, Decision, Rules
from penstock.security.principal import Principal

if TYPE_CHECKING:
    from penstock.operate.session import Session

SHORT_NAMES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "cluster": ResourceType.CLUSTER,
    "txn": ResourceType.TRANSACTIONAL_ID,
    "token": ResourceType.DELEGATION_TOKEN,
    "user": ResourceType.USER,
}
_SHOWN = {kind: name for name, kind in SHORT_NAMES.items()}
RESOURCE_HINT = "write topic:NAME, topic:PREFIX*, topic:*, group:…, txn:…, token:…, user:… or cluster"


@dataclass(frozen=True, slots=True)
class Resource:
    kind: ResourceType
    pattern: PatternType
    name: str


def parse_resource(text: str) -> Resource:
    """`topic:orders`, `topic:ord*` (all that begin so), `topic:*` (all), `cluster`."""
    short, _, name = text.partition(":")
    kind = SHORT_NAMES.get(short)
    if kind is ResourceType.CLUSTER and name in ("", CLUSTER_NAME):
        return Resource(kind, PatternType.LITERAL, CLUSTER_NAME)
    if kind is None or not name or kind is ResourceType.CLUSTER:
        raise usage_error(f"{text!r} is no resource", RESOURCE_HINT)
    if name.endswith("*") and name != WILDCARD:
        return Resource(kind, PatternType.PREFIXED, name[:-1])
    return Resource(kind, PatternType.LITERAL, name)


def parse_operation(text: str, kind: ResourceType) -> Operation:
    known = (Operation.ALL, *supported_operations(kind))
    for operation in known:
        if operation.name.replace("_", "") == text.replace("_", "").replace("-", "").upper():
            return operation
    choices = ", ".join(operation.name.lower().replace("_", "-") for operation in known)
    raise usage_error(f"{text!r} is nothing that is done with a {_SHOWN[kind]}", f"that would be: {choices}")


def parse_principal(text: str) -> str:
    """`User:anna`, or just `anna`."""
    try:
        return str(Principal.parse(text if ":" in text else f"User:{text}"))
    except ValueError as error:
        raise usage_error(str(error)) from None


def row(binding: AclBinding) -> dict[str, Any]:
    prefixed = binding.pattern_type == PatternType.PREFIXED
    resource = _SHOWN[binding.resource_type]
    if binding.resource_type != ResourceType.CLUSTER:
        resource += f":{binding.name}{'*' if prefixed else ''}"
    return {
        "principal": binding.principal,
        "permission": binding.permission.name.lower(),
        "operation": binding.operation.name.lower().replace("_", "-"),
        "resource": resource,
        "host": binding.host,
    }


def listed(session: Session, wanted: AclFilter | None = None) -> list[AclBinding]:
    api = messages.api("describe_acls")
    answer = session.client.call_any("describe_acls", api.Request(**_filter_fields(wanted or AclFilter())))
    if answer.error_code:
        raise admin.refuse(answer.error_code, "the ACLs cannot be read", answer.error_message)
    found = [
        AclBinding(
            ResourceType(resource.resource_type),
            resource.resource_name,
            PatternType(resource.pattern_type),
            acl.principal,
            acl.host,
            Operation(acl.operation),
            Permission(acl.permission_type),
        )
        for resource in answer.resources
        for acl in resource.acls
    ]
    return sorted(found, key=lambda b: (b.principal, b.resource_type, b.name, b.operation, b.host))


def create(session: Session, bindings: Sequence[AclBinding]) -> None:
    api = messages.api("create_acls")
    creations = [
        api.AclCreation(
            resource_type=int(binding.resource_type),
            resource_name=binding.name,
            resource_pattern_type=int(binding.pattern_type),
            principal=binding.principal,
            host=binding.host,
            operation=int(binding.operation),
            permission_type=int(binding.permission),
        )
        for binding in bindings
    ]
    answer = session.client.call_controller("create_acls", api.Request(creations=creations))
    for binding, result in zip(bindings, answer.results, strict=True):
        if result.error_code:
            raise admin.refuse(result.error_code, str(binding), result.error_message)


def delete(session: Session, wanted: Iterable[AclFilter]) -> int:
    """How many were there."""
    api = messages.api("delete_acls")
    struct = api.request_struct("DeleteAclsFilter")
    request = api.Request(filters=[struct(**_filter_fields(one)) for one in wanted])
    count = 0
    for result in session.client.call_controller("delete_acls", request).filter_results:
        if result.error_code:
            raise admin.refuse(result.error_code, "the ACLs cannot be deleted", result.error_message)
        count += len(result.matching_acls)
    return count


def _filter_fields(wanted: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": int(wanted.resource_type),
        "resource_name_filter": wanted.name,
        "pattern_type_filter": int(wanted.pattern_type),
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": int(wanted.operation),
        "permission_type": int(wanted.permission),
    }


def rules(session: Session) -> Rules:
    """What the brokers decide by: the ACLs, and the settings of one of them."""
    node = min(admin.live_brokers(session))
    settings = {c.name: c.value for c in admin.describe_configs(session, admin.BROKER_RESOURCE, str(node), node)}
    super_users = frozenset(part.strip() for part in (settings.get("super.users") or "").split(";") if part.strip())
    everyone = settings.get("allow.everyone.if.no.acl.found") == "true"
    return Rules(AclSet.of(listed(session)), super_users, everyone)


def explained(decision: Decision) -> str:
    """Why, in words."""
    if decision.by is not None:
        return f"by: {decision.by}"
    return {
        "super user": "it is one of the super users",
        "nothing is said about it": "no ACL speaks about this resource, and allow.everyone.if.no.acl.found is on",
        "no rule": "no ACL allows it",
    }[decision.reason]
