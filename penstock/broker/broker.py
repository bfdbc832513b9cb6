"""The broker: owns every part of one node and wires them together. The parts know nothing of each other's wiring.

Handlers reach everything through the attributes below; a part that is not there yet is None until `start`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.broker.api.registry import REGISTRY

if TYPE_CHECKING:
    import asyncio


class Broker:
    """One node: `await start()`, serve until `await stop()`."""

    settings: Any  # base.settings.Settings
    clock: Any  # base.clock.Clock
    node_id: int
    cluster_id: str
    store: Any  # store.TreeStore
    log_manager: Any  # log.log_manager.LogManager
    replicas: Any  # replication.ReplicaManager
    controller: Any  # cluster.ControllerDriver, whether or not this node is the active one
    groups: Any  # coordinator.group service, or None
    transactions: Any  # coordinator.transaction service, or None
    security: Any  # acl + quota decisions, or None (everything allowed)
    metrics: Any
    loop: asyncio.AbstractEventLoop

    def __init__(self, settings: Any, clock: Any | None = None) -> None:
        self.settings = settings
        self.clock = clock
        self.registry = REGISTRY

    @property
    def image(self) -> Any:
        """The newest MetadataImage that this broker has applied."""
        return self.replicas.image

    async def start(self) -> None:
        raise NotImplementedError

    async def stop(self) -> None:
        raise NotImplementedError
