"""29 DescribeAcls, v1–3: the ACLs that a filter finds. v1: prefixed patterns · v2: flexible · v3: users as resources.

Without an authorizer the answer is SECURITY_DISABLED, which mirroring tools ask for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.api.spec import ApiSpec, RequestContext

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.protocol.shapes import DescribeAcls

API = ApiSpec(29, "DescribeAcls", 1, 3)


async def handle(broker: Broker, ctx: RequestContext, request: DescribeAcls.Request) -> DescribeAcls.Response:
    from penstock.broker.api.acl_support import acl_store, filter_of
    from penstock.protocol import messages
    from penstock.security.acl_model import AclBinding, Pattern

    wanted = filter_of(request)
    store = acl_store(broker, ctx, "DESCRIBE")
    api = messages.api("describe_acls")
    by_pattern: dict[Pattern, list[AclBinding]] = {}
    for binding in store.acls.matching(wanted) if wanted is not None else ():
        by_pattern.setdefault(binding.pattern, []).append(binding)
    return api.Response(
        error_code=0,
        error_message=None,
        resources=[
            api.DescribeAclsResource(
                resource_type=int(kind),
                resource_name=name,
                pattern_type=int(pattern_type),
                acls=[
                    api.AclDescription(
                        principal=binding.principal,
                        host=binding.host,
                        operation=int(binding.operation),
                        permission_type=int(binding.permission),
                    )
                    for binding in bindings
                ],
            )
            for (kind, pattern_type, name), bindings in by_pattern.items()
        ],
    )


def error_response(request: DescribeAcls.Request, code: int, message: str | None) -> DescribeAcls.Response:
    from penstock.protocol import messages

    return messages.api("describe_acls").Response(error_code=int(code), error_message=message, resources=[])
