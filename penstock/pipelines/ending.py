"""Reset and delete: the driver is fenced, its sinks end, and only then the checkpoint goes.

A sink that ends commits what was decided and aborts the rest. Every step may be repeated, so that whoever comes next
finishes what a crash interrupted.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any

from penstock.client.client import Client
from penstock.client.sync import SyncClient
from penstock.pipelines.checkpoint import PipelineState
from penstock.pipelines.spark import sink_decisions as decisions
from penstock.pipelines.spark import sink_transactions as transactions

log = logging.getLogger(__name__)


def driver_id(pipeline: str) -> str:
    """The transactional id under which a pipeline's only driver writes its events."""
    return f"penstock.{pipeline}.driver"


def fence(client: SyncClient, pipeline: str) -> None:
    """Whoever runs the pipeline learns with its next sign of life that it is over."""
    client.run(lambda inner: transactions.open_transaction(inner, driver_id(pipeline)))


def end_pipeline(client: SyncClient, pipeline: str, more: Collection[str] = ()) -> int:
    """End every sink of a pipeline (`more`: those that only its checkpoint knows of); how many were still writing."""

    async def run(inner: Client) -> int:
        names = sorted({*await decisions.names_of(inner, pipeline), *more})
        finished = await decisions.settle_ended(inner, pipeline)
        return finished + sum([await decisions.end(inner, name, pipeline) for name in names])

    return client.run(run)


def reset(client: SyncClient, pipeline: str, state: PipelineState, *, backfill: bool) -> int:
    """Forget everything that was read; how many transactions were still open."""
    ended = end_pipeline(client, pipeline, state.old_sink_names())
    state.reset(backfill=backfill)
    return ended


def discard_state(
    client: SyncClient, pipeline: str, state: PipelineState, begin: dict[str, dict[str, int]] | None = None
) -> list[str]:
    """Go on at the same offsets (`begin`: or at these) with nothing remembered; what is lost, in words."""
    positions = {**state.positions(), **(begin or {})}
    lost = [text for fingerprint in state.kept().values() for text in fingerprint.get("stateful", ())]
    state.begin_discarding(positions)
    _finish_discarding(client, pipeline, state)
    return list(dict.fromkeys(lost))


def _finish_discarding(client: SyncClient, pipeline: str, state: PipelineState) -> None:
    end_pipeline(client, pipeline, state.old_sink_names())
    state.finish_discarding()


def finish_endings(client: SyncClient, pipeline: str, state: PipelineState) -> None:
    """A checkpoint whose sinks have ended is one that a reset or a deletion did not come to remove."""
    if state.is_discarding():
        log.warning("pipeline %s: discarding its state was interrupted; it is finished now", pipeline)
        _finish_discarding(client, pipeline, state)
    names = state.sink_names()
    if names and client.run(lambda inner: decisions.ended_names(inner, names)):
        log.warning("pipeline %s was reset or deleted, and that was interrupted; it is finished now", pipeline)
        reset(client, pipeline, state, backfill=state.from_beginning)


def end_abandoned(
    client: SyncClient, pipeline: str, place: str, state: PipelineState, current: Collection[str]
) -> None:
    """Sinks of this place that nobody continues: their checkpoint is gone, or the spec has left them out."""
    kept = set(state.sink_names())

    async def run(inner: Client) -> None:
        await decisions.settle_ended(inner, pipeline)
        for name, known in (await decisions.names_of(inner, pipeline)).items():
            if known.place != place or name in current:
                continue
            if name in kept:
                await decisions.settle(inner, name, known)
            else:
                log.warning("%s: the checkpoint of %s is gone; what it left open is ended", pipeline, name)
                await decisions.end(inner, name, pipeline)

    client.run(run)


def register(client: SyncClient, pipeline: str, place: str, names: Collection[str]) -> None:
    async def run(inner: Client) -> Any:
        return [await decisions.register(inner, name, pipeline, place) for name in names]

    client.run(run)
