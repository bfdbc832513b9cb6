"""31 DeleteAcls, v1–3: deletes what filters find, and tells what that was.

v1: prefixed patterns · v2: flexible · v3: users as resources. What was allowed before is refused from the answer on, on
open connections too; other brokers learn of it from the store at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.protocol.shapes import DeleteAcls

API = ApiSpec(31, "DeleteAcls", 1, 3)


async def handle(broker: Broker, ctx: RequestContext, request: DeleteAcls.Request) -> DeleteAcls.Response:
    from penstock.broker.api.acl_support import acl_store, filter_of
    from penstock.protocol import messages

    filters = [filter_of(asked) for asked in request.filters]
    store = acl_store(broker, ctx, "ALTER")
    deleted = iter(await store.remove([wanted for wanted in filters if wanted is not None]))
    api = messages.api("delete_acls")
    invalid = int(ErrorCode.INVALID_REQUEST)
    return api.Response(
        filter_results=[
            api.DeleteAclsFilterResult(error_code=invalid, error_message="Unknown filter.", matching_acls=[])
            if wanted is None
            else api.DeleteAclsFilterResult(
                error_code=0,
                error_message=None,
                matching_acls=[
                    api.DeleteAclsMatchingAcl(
                        error_code=0,
                        error_message=None,
                        resource_type=int(binding.resource_type),
                        resource_name=binding.name,
                        pattern_type=int(binding.pattern_type),
                        principal=binding.principal,
                        host=binding.host,
                        operation=int(binding.operation),
                        permission_type=int(binding.permission),
                    )
                    for binding in next(deleted)
                ],
            )
            for wanted in filters
        ]
    )


def error_response(request: DeleteAcls.Request, code: int, message: str | None) -> DeleteAcls.Response:
    from penstock.protocol import messages

    api = messages.api("delete_acls")
    return api.Response(
        filter_results=[
            api.DeleteAclsFilterResult(error_code=int(code), error_message=message, matching_acls=[])
            for _ in request.filters
        ]
    )
