"""Before a transactional batch is appended: is its partition in the transaction (KIP-890)?

Up to v11 the coordinator is asked to verify, from v12 to add the partition; a partition whose transaction is open
already needs no question.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


class Verified(NamedTuple):
    error: int
    message: str | None = None
    guard: Any = None


async def verify(
    broker: Broker, transactional_id: str, version: int, batches: list[tuple[str, int, bytes]]
) -> dict[tuple[str, int], Verified]:
    """Guards (or errors) for the partitions whose append needs one."""
    raise NotImplementedError
