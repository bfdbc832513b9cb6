"""Fetches that take longer than a turn: of very many partitions, or of what lies on the disk only.

They are read in slices between which everybody else is served; what has to come from the disk, a thread reads first.
Very many partitions are not watched one by one: where nothing is there, they are looked at once more after a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Iterator
from typing import TYPE_CHECKING, TypeVar

from penstock.broker.fetch.codec import FetchRequest, encode_fetch, parse_fetch
from penstock.broker.fetch.sessions import FetchContext
from penstock.broker.network.wire import UNREADABLE, MalformedFrame
from penstock.log import cold
from penstock.log.damage import UNREADABLE as UNREADABLE_FILES

if TYPE_CHECKING:
    from penstock.broker.api.fetch import FetchHandler, Results
    from penstock.broker.fetch.codec import FetchPartition
    from penstock.broker.network.connection import Connection, Slot
    from penstock.broker.produce.codec import Leader

logger = logging.getLogger(__name__)

LARGE_FETCH_BYTES = 64 * 1024  # two thousand partitions: larger requests are parsed and answered by a thread
PARTITIONS_PER_SLICE = 250
LONGEST_PAUSE_SECONDS = 0.1

Item = TypeVar("Item")


def start(
    handler: FetchHandler,
    connection: Connection,
    slot: Slot,
    correlation_id: int,
    request: FetchRequest,
    context: FetchContext,
    waited: bool = False,
) -> None:
    """Go on with a request that is known to take long; `waited`: its long poll is over."""
    answered = _read_and_answer(handler, connection, slot, correlation_id, request, context, waited)
    _run(handler, connection, slot, answered)


def start_large(
    handler: FetchHandler, connection: Connection, version: int, correlation_id: int, position: int, end: int
) -> None:
    """Begin with a request of very many partitions."""
    data = bytes(connection.view[position:end])
    connection.client_id = handler.dispatcher.client_id(connection)
    slot = handler.dispatcher.new_slot(connection, handler.route)
    _run(handler, connection, slot, _parse_and_answer(handler, connection, slot, version, correlation_id, data))


def _run(handler: FetchHandler, connection: Connection, slot: Slot, answered: Awaitable[bool]) -> None:
    connection.busy = True
    dispatcher = handler.dispatcher
    task = dispatcher.loop.create_task(_guard(handler, connection, slot, answered))
    dispatcher.tasks.add(task)
    task.add_done_callback(dispatcher.tasks.discard)


async def _guard(handler: FetchHandler, connection: Connection, slot: Slot, answered: Awaitable[bool]) -> None:
    try:
        if not await answered:
            return
    except asyncio.CancelledError:
        connection.close()
        raise
    except MalformedFrame as error:
        handler.dispatcher.refuse_malformed(connection, error)
        return
    except Exception:
        logger.exception("closing client=%s: a fetch failed", connection.client_host)
        handler.stats.ran_into_bug("Fetch", "closed")
        connection.close()
        return
    if not connection.closed:
        connection.answer_bytes += len(slot.parts[0])
        connection.finish(slot, slot.parts)


async def _parse_and_answer(
    handler: FetchHandler, connection: Connection, slot: Slot, version: int, correlation_id: int, data: bytes
) -> bool:
    try:
        request = await handler.dispatcher.large.run(parse_fetch, data, version, 0, len(data))
    except UNREADABLE as error:
        raise MalformedFrame(f"fetch v{version}: {error}") from error
    # In the thread as well: whoever is refused is told so for each partition.
    if not await handler.dispatcher.large.run(handler.admit, connection, slot, correlation_id, request):
        return True
    context = await _context(handler, request)
    if context.error:
        handler.refuse(slot, correlation_id, request, context.error)
        return True
    handler.look_around(connection, request, context, update=True)
    return await _read_and_answer(handler, connection, slot, correlation_id, request, context)


async def _context(handler: FetchHandler, request: FetchRequest) -> FetchContext:
    """A session takes in what is asked slice by slice; what it is to forget comes last, as in one go."""
    asked, forgotten = request.partitions, request.forgotten
    request.partitions, request.forgotten = asked[:PARTITIONS_PER_SLICE], []
    context = handler.sessions.context(request, handler.dispatcher.now, len(asked))
    request.partitions = asked
    if context.error:
        return context
    if context.session is None:
        return FetchContext(asked)
    rest = FetchRequest(request.version)
    for rest.partitions in _pieces(asked[PARTITIONS_PER_SLICE:]):
        await asyncio.sleep(0)
        context.session.update(rest)
    rest.partitions = []
    for rest.forgotten in _pieces(forgotten):
        await asyncio.sleep(0)
        context.session.update(rest)
    return context


async def _read_and_answer(
    handler: FetchHandler,
    connection: Connection,
    slot: Slot,
    correlation_id: int,
    request: FetchRequest,
    context: FetchContext,
    waited: bool = False,
) -> bool:
    """False: it waits for more, and is answered by that."""
    results = await _read(handler, connection, request, context, update=not waited)
    if not waited and not handler.answers_now(request, context, results):
        if connection.closed:
            return False  # nobody would take its long poll back
        if context.due_count <= PARTITIONS_PER_SLICE:
            handler.park(connection, slot, correlation_id, request, context)
            return False
        await asyncio.sleep(min(request.max_wait_ms / 1000, LONGEST_PAUSE_SECONDS))
        handler.look_around(connection, request, context)
        results = await _read(handler, connection, request, context, update=False)
    if handler.pauses(connection, slot, correlation_id, request, context, results):
        return True
    leaders: dict[tuple[bytes, int], Leader] = {}
    changed: Results = []
    for piece in _pieces(results):
        leaders |= handler.count(connection, request, piece) or {}
        if context.session is not None:
            changed += context.session.changed(piece)
        await asyncio.sleep(0)
    if context.session is not None and context.incremental:
        results = changed
    if len(results) <= PARTITIONS_PER_SLICE:
        slot.parts = encode_fetch(request.version, correlation_id, 0, context.session_id, results, leaders)
    else:
        slot.parts = await handler.dispatcher.large.run(
            encode_fetch, request.version, correlation_id, 0, context.session_id, results, leaders
        )
        things = [request, context, results, changed]
        del request, context, results, changed, piece
        handler.dispatcher.large.free(things)
    return True


async def _read(
    handler: FetchHandler, connection: Connection, request: FetchRequest, context: FetchContext, update: bool
) -> Results:
    results: Results = []
    remaining = handler.limit_bytes(request)
    nothing_yet = True
    seen: list[tuple[FetchPartition, int]] = []
    for partitions in _pieces(list(context.partitions())):
        piece = FetchContext(partitions)
        found = await _read_piece(handler, connection, request, piece, update, remaining, nothing_yet)
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


async def _read_piece(
    handler: FetchHandler,
    connection: Connection,
    request: FetchRequest,
    piece: FetchContext,
    update: bool,
    remaining: int,
    nothing_yet: bool,
) -> Results:
    """As often as pages are missing a thread reads them; a disk that forgets them at once is waited for in the end."""
    for _ in range(2 * len(piece.all_partitions) + 2):
        cold.refuse_to_wait()
        try:
            return handler.read(connection, request, piece, update, remaining, nothing_yet)
        except cold.ColdPages as pages:
            warm = pages.warm
        finally:
            cold.wait_again()
        with contextlib.suppress(*UNREADABLE_FILES):  # the next look tells
            await handler.dispatcher.loop.run_in_executor(None, warm)
    return handler.read(connection, request, piece, update, remaining, nothing_yet)


def _pieces(items: list[Item]) -> Iterator[list[Item]]:
    for start in range(0, len(items), PARTITIONS_PER_SLICE):
        yield items[start : start + PARTITIONS_PER_SLICE]
