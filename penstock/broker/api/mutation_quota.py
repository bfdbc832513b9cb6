"""The quota on changes of topics (KIP-599), for the three APIs that make or delete partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.api.spec import RequestContext
    from penstock.broker.broker import Broker

EXCEEDED = ErrorCode.THROTTLING_QUOTA_EXCEEDED
MESSAGE = "The throttling quota has been exceeded."


class MutationBudget:
    """One request's part of it. Clients from `first_strict` on are refused what is too much, older ones slowed down."""

    def __init__(self, broker: Broker, ctx: RequestContext, first_strict: int) -> None:
        self._quotas = broker.quotas
        self._ctx = ctx
        self._strict = ctx.api_version >= first_strict

    def spend(self, partitions: int) -> bool:
        """Whether so many partitions may be changed now; the pause goes into the answer."""
        if self._quotas is None:
            return True
        ctx = self._ctx
        allowed, pause_ms = self._quotas.mutated(ctx.connection, ctx.client_id, partitions, strict=self._strict)
        ctx.throttle_time_ms = max(ctx.throttle_time_ms, pause_ms)
        return allowed
