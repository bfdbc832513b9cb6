"""Writes of a controller: each one carries the check that its epoch is still the current one (fencing)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from penstock.cluster import znodes
from penstock.cluster.events import DecisionOutput, Stage
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
        """Everything a decision wants written, then its removals. Raises ControllerMoved or StateUnknown.

        In one transaction if it fits; else stage by stage, many transactions at once within a stage.
        """
        units = [write.operations for write in sorted(output.writes, key=lambda write: write.stage)]
        batches = _pack(units)
        if len(batches) == 1:
            await self.write_operations(batches[0])
        else:
            for stage in Stage:
                await self._write_stage(_pack([w.operations for w in output.writes if w.stage is stage]))
        for path in output.removals:
            await self._remove(path)

    async def _write_stage(self, batches: list[list[Operation]]) -> None:
        for start in range(0, len(batches), MULTIS_IN_FLIGHT):
            group = batches[start : start + MULTIS_IN_FLIGHT]
            results = await asyncio.gather(*(self.write_operations(batch) for batch in group), return_exceptions=True)
            failures = [r for r in results if isinstance(r, BaseException)]
            for failure in sorted(failures, key=lambda f: not isinstance(f, ControllerMoved)):
                raise failure

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


def _pack(units: Sequence[Sequence[Operation]]) -> list[list[Operation]]:
    """Units share transactions and are never cut."""
    batches: list[list[Operation]] = []
    current: list[Operation] = []
    current_bytes = 0
    for unit in units:
        size = sum(len(operation.path) + len(getattr(operation, "data", b"")) + 40 for operation in unit)
        is_full = len(current) + len(unit) > OPERATIONS_PER_MULTI or current_bytes + size > BYTES_PER_MULTI
        if current and is_full:
            batches.append(current)
            current, current_bytes = [], 0
        current += unit
        current_bytes += size
    if current:
        batches.append(current)
    return batches
