"""One altered resource, for both AlterConfigs and IncrementalAlterConfigs: where the change goes and who checks it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.broker.api.admin_support import config_admin, explained
from penstock.broker.api.config_resources import (
    LEVELS,
    BadResource,
    ResourceType,
    config_key,
    group_problem,
    loggers,
)
from penstock.broker.network.slices import in_slices
from penstock.cluster.configs import Alteration, AlterKind
from penstock.cluster.topics import Refusal
from penstock.protocol import messages
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


async def alter_each(api_name: str, resources: Sequence[Any], alter: Callable[[Any], Awaitable[None]]) -> Any:
    """Every resource by itself; one that appears twice fails each time."""
    seen = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    outcomes: list[tuple[int, str | None]] = []
    async for resource in in_slices(resources):
        code, message = ErrorCode.NONE, None
        try:
            if seen[(resource.resource_type, resource.resource_name)] > 1:
                raise Refusal(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            await alter(resource)
        except (Refusal, BadResource) as refusal:
            code, message = refusal.code, explained(refusal.code, refusal.message)
        outcomes.append((int(code), message))
    return _response(api_name, resources, outcomes)


def refuse_each(api_name: str, resources: Sequence[Any], code: int, message: str | None) -> Any:
    """The request as a whole is refused."""
    return _response(api_name, resources, [(int(code), message)] * len(resources))


def _response(api_name: str, resources: Sequence[Any], outcomes: Sequence[tuple[int, str | None]]) -> Any:
    api = messages.api(api_name)
    struct = api.response_struct("AlterConfigsResourceResponse")
    return api.Response(
        responses=[
            struct(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource, (code, message) in zip(resources, outcomes, strict=True)
        ]
    )


async def alter_resource(
    broker: Broker, kind_number: int, name: str, alterations: Sequence[Alteration], validate_only: bool
) -> None:
    """Change some settings of one resource. Raises Refusal or BadResource."""
    if kind_number not in {int(kind) for kind in ResourceType}:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind_number}")
    kind = ResourceType(kind_number)
    key = config_key(broker, kind, name)
    if kind is ResourceType.BROKER_LOGGER:
        _alter_loggers(alterations, validate_only)
        return
    admin = config_admin(broker)
    if kind is not ResourceType.GROUP:
        await admin.alter_incrementally(key, alterations, validate_only=validate_only)
        return
    overrides = await admin.read(key)
    for alteration in alterations:
        if alteration.kind is AlterKind.DELETE:
            overrides.pop(alteration.name, None)
        elif alteration.kind is AlterKind.SET and alteration.value is not None:
            overrides[alteration.name] = alteration.value
        else:
            raise Refusal(ErrorCode.INVALID_CONFIG, f"{alteration.name} is not a list.")
    problem = group_problem(overrides)
    if problem is not None:
        raise Refusal(ErrorCode.INVALID_CONFIG, problem)
    if not validate_only:
        await admin.write(key, overrides)


def _alter_loggers(alterations: Sequence[Alteration], validate_only: bool) -> None:
    known = loggers()
    for alteration in alterations:
        if alteration.name not in known:
            raise Refusal(ErrorCode.INVALID_CONFIG, f"There is no logger {alteration.name}.")
        if alteration.kind is AlterKind.SET and (alteration.value or "").upper() not in LEVELS:
            raise Refusal(ErrorCode.INVALID_CONFIG, f"A log level is one of {', '.join(LEVELS)}.")
        if alteration.kind not in (AlterKind.SET, AlterKind.DELETE):
            raise Refusal(ErrorCode.INVALID_REQUEST, "A log level is set or deleted.")
    if validate_only:
        return
    for alteration in alterations:
        level = LEVELS[(alteration.value or "").upper()] if alteration.kind is AlterKind.SET else 0
        known[alteration.name].setLevel(level)
