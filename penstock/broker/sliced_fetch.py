"""Fetches of very many partitions: read in slices between which everybody else is served.

They are not parked on each of their partitions: where nothing is there, they look once more after a short while.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from penstock.broker.fetch_sessions import FetchContext

if TYPE_CHECKING:
    from penstock.broker.api.fetch import FetchHandler
    from penstock.broker.connection import Connection, Slot
    from penstock.broker.fetch_codec import FetchPartition, FetchRequest

logger = logging.getLogger(__name__)

PARTITIONS_PER_SLICE = 250
LONGEST_PAUSE_SECONDS = 0.1


def start(
    handler: FetchHandler,
    connection: Connection,
    slot: Slot,
    correlation_id: int,
    request: FetchRequest,
    context: FetchContext,
) -> None:
    connection.busy = True
    dispatcher = handler.dispatcher
    task = dispatcher.loop.create_task(_answer(handler, connection, slot, correlation_id, request, context))
    dispatcher.tasks.add(task)
    task.add_done_callback(dispatcher.tasks.discard)


async def _answer(
    handler: FetchHandler,
    connection: Connection,
    slot: Slot,
    correlation_id: int,
    request: FetchRequest,
    context: FetchContext,
) -> None:
    try:
        results = await _read(handler, connection, request, context, update=True)
        if not handler.answers_now(request, context, results):
            await asyncio.sleep(min(request.max_wait_ms / 1000, LONGEST_PAUSE_SECONDS))
            handler.look_around(connection, request, context)
            results = await _read(handler, connection, request, context, update=False)
        handler.answer(connection, slot, correlation_id, request, context, results)
    except asyncio.CancelledError:
        connection.close()
        raise
    except Exception:
        logger.exception("closing client=%s: a fetch failed", connection.client_host)
        handler.stats.ran_into_bug("Fetch", "closed")
        connection.close()
        return
    if not connection.closed:
        connection.answer_bytes += len(slot.parts[0])
        connection.finish(slot, slot.parts)


async def _read(
    handler: FetchHandler, connection: Connection, request: FetchRequest, context: FetchContext, update: bool
) -> list[Any]:
    results: list[Any] = []
    remaining = handler.limit_bytes(request)
    nothing_yet = True
    partitions = list(context.partitions())
    seen: list[tuple[FetchPartition, int]] = []
    for start in range(0, len(partitions), PARTITIONS_PER_SLICE):
        piece = FetchContext(partitions[start : start + PARTITIONS_PER_SLICE])
        found = handler.read(connection, request, piece, update, remaining, nothing_yet)
        size = sum(fetched.size for _, fetched in found)
        nothing_yet = nothing_yet and not size
        remaining = max(remaining - size, 0)
        results += found
        seen += [(asked, asked.replica.changes) for asked, _ in found if asked.replica is not None]
        await asyncio.sleep(0)
    for asked, changes in seen:
        if asked.replica is not None and asked.replica.changes != changes:
            asked.replica = None  # not what it was when it was read: it may not rest in its session
    return results
