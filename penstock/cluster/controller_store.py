"""Writes of a controller: each one carries the check that its epoch is still the current one (fencing)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from penstock.cluster import znodes
from penstock.cluster.events import DecisionOutput
from penstock.store.interface import (
    Check,
    Create,
    Delete,
    MultiFailed,
    NodeExists,
    NoNode,
    Operation,
    StoreError,
    TreeStore,
)

OPERATIONS_PER_MULTI = 200
BYTES_PER_MULTI = 400_000
"""Well below ZooKeeper's limit of 1 MB a packet."""
MULTIS_IN_FLIGHT = 16
CHILDREN_AT_A_TIME = 64
"""A topic may have thousands: neither the store nor the loop shall get all of them at once."""


class ControllerMoved(Exception):
    """The controller epoch in the store is not ours any more."""


class StateUnknown(Exception):
    """A write failed in a way that leaves open what the store holds."""


class FencedWriter:
    def __init__(self, store: TreeStore, epoch: int, epoch_version: int) -> None:
        self._store = store
        self.epoch = epoch
        self._check = Check(znodes.CONTROLLER_EPOCH, epoch_version)

    async def write(self, output: DecisionOutput) -> None:
        """Everything a decision wants written, then its removals. Raises ControllerMoved or StateUnknown."""
        batches = _pack([write.operations for write in output.writes])
        for start in range(0, len(batches), MULTIS_IN_FLIGHT):
            group = batches[start : start + MULTIS_IN_FLIGHT]
            results = await asyncio.gather(*(self.write_operations(batch) for batch in group), return_exceptions=True)
            failures = [r for r in results if isinstance(r, BaseException)]
            for failure in sorted(failures, key=lambda f: not isinstance(f, ControllerMoved)):
                raise failure
        for path in output.removals:
            await self._remove(path)

    async def write_operations(self, operations: Sequence[Operation]) -> None:
        remaining = list(operations)
        while remaining:
            try:
                await self._store.multi([self._check, *remaining])
                return
            except MultiFailed as failed:
                if failed.index == 0:
                    raise ControllerMoved from failed
                refused = remaining[failed.index - 1]
                if isinstance(refused, Create) and isinstance(failed.error, NodeExists) and not refused.data:
                    remaining.remove(refused)  # a folder that an earlier controller made before it died
                    continue
                raise StateUnknown(str(failed)) from failed
            except StoreError as error:
                raise StateUnknown(str(error)) from error

    async def _remove(self, path: str) -> None:
        """Delete a node with everything below it, children first."""
        try:
            doomed = await self._paths_below(path)
        except StoreError as error:
            raise StateUnknown(str(error)) from error
        for start in range(0, len(doomed), OPERATIONS_PER_MULTI):
            await self.write_operations([Delete(p) for p in doomed[start : start + OPERATIONS_PER_MULTI]])

    async def _paths_below(self, path: str) -> list[str]:
        try:
            names = await self._store.children(path)
        except NoNode:
            return []
        doomed: list[str] = []
        for start in range(0, len(names), CHILDREN_AT_A_TIME):
            group = names[start : start + CHILDREN_AT_A_TIME]
            for paths in await asyncio.gather(*(self._paths_below(f"{path}/{name}") for name in group)):
                doomed += paths
        doomed.append(path)
        return doomed


def _pack(groups: Sequence[Sequence[Operation]]) -> list[list[Operation]]:
    """Small groups share a transaction; a large one is cut (its order is kept, so a half-written topic is completed
    by the next controller)."""
    batches: list[list[Operation]] = []
    current: list[Operation] = []
    current_bytes = 0
    for group in groups:
        for operation in group:
            size = len(operation.path) + len(getattr(operation, "data", b"")) + 40
            if current and (len(current) >= OPERATIONS_PER_MULTI or current_bytes + size > BYTES_PER_MULTI):
                batches.append(current)
                current, current_bytes = [], 0
            current.append(operation)
            current_bytes += size
    if current:
        batches.append(current)
    return batches
