"""30 CreateAcls, v1–3: more ACLs. Each succeeds or fails by itself; answered when this broker goes by them.

v1: prefixed patterns · v2: flexible · v3: users as resources. Other brokers learn of them from the store at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.protocol.shapes import CreateAcls
    from penstock.security.acl_model import AclBinding

API = ApiSpec(30, "CreateAcls", 1, 3)

LONGEST_NAME_CHARACTERS = 4096  # with its escapes it still fits a node's path


async def handle(broker: Broker, ctx: RequestContext, request: CreateAcls.Request) -> CreateAcls.Response:
    from penstock.broker.api.acl_support import acl_store, refuse_unknown
    from penstock.protocol import messages

    for creation in request.creations:
        refuse_unknown(*_numbers(creation))
    store = acl_store(broker, ctx, "ALTER")
    api = messages.api("create_acls")
    results, bindings = [], []
    for creation in request.creations:
        problem = _problem(creation)
        code = ErrorCode.NONE if problem is None else ErrorCode.INVALID_REQUEST
        results.append(api.AclCreationResult(error_code=int(code), error_message=problem))
        if problem is None:
            bindings.append(_binding(creation))
    await store.add(bindings)
    return api.Response(results=results)


def _numbers(creation: Any) -> tuple[int, int, int, int]:
    return creation.resource_type, creation.resource_pattern_type, creation.operation, creation.permission_type


def _problem(creation: Any) -> str | None:
    from penstock.broker.api.acl_support import all_known
    from penstock.security.acl_model import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType

    if creation.resource_type == ResourceType.CLUSTER and creation.resource_name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not all_known(*_numbers(creation)):
        return "Invalid ACL: a type, pattern, operation or permission is UNKNOWN"
    if not creation.resource_name:
        return "Invalid empty resource name"
    if len(creation.resource_name) > LONGEST_NAME_CHARACTERS:
        return f"A resource name has at most {LONGEST_NAME_CHARACTERS} characters"
    if creation.resource_type == ResourceType.ANY:
        return "Invalid resourceType ANY"
    if creation.resource_pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"Invalid patternType {PatternType(creation.resource_pattern_type).name}"
    if creation.operation == Operation.ANY:
        return "Invalid operation ANY"
    if creation.permission_type not in (Permission.DENY, Permission.ALLOW):
        return "Invalid permissionType ANY"
    kind, separator, name = creation.principal.partition(":")
    if not separator or not kind or not name:
        return f"Could not parse principal from `{creation.principal}` (no colon is present separating the type)"
    return None


def _binding(creation: Any) -> AclBinding:
    from penstock.security.acl_model import AclBinding, Operation, PatternType, Permission, ResourceType

    return AclBinding(
        ResourceType(creation.resource_type),
        creation.resource_name,
        PatternType(creation.resource_pattern_type),
        creation.principal,
        creation.host,
        Operation(creation.operation),
        Permission(creation.permission_type),
    )


def error_response(request: CreateAcls.Request, code: int, message: str | None) -> CreateAcls.Response:
    from penstock.protocol import messages

    api = messages.api("create_acls")
    return api.Response(
        results=[api.AclCreationResult(error_code=int(code), error_message=message) for _ in request.creations]
    )
