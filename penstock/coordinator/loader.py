"""Loading a shard: replay of its partition in slices, so that a million records never stall the event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.coordinator.shard_log import ShardLog

if TYPE_CHECKING:
    from penstock.coordinator.runtime import StateMachine

__all__ = ["load_partition"]


async def load_partition(
    log: ShardLog,
    partition: int,
    machine: StateMachine,
    *,
    slice_bytes: int,
    still_wanted: Callable[[], bool],
) -> int:
    """Replay the partition from its start to its end as of now; the number of records replayed."""
    raise NotImplementedError
