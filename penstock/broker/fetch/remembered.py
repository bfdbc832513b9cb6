"""Which fetches are worth remembering: whose next one may take the short way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.broker.fetch.sessions import CLOSE_EPOCH, NO_SESSION, FetchContext
from penstock.broker.fetch.shape import shape_of
from penstock.broker.fetch.usual import UsualFetch
from penstock.broker.fetch.usual_follower import UsualFollowerFetch
from penstock.broker.network.connection import Connection
from penstock.broker.network.outbox import SMALL_REGION_BYTES
from penstock.replication.partition import NO_EPOCH, Partition
from penstock.replication.roles import Bound

if TYPE_CHECKING:
    from penstock.broker.api.fetch import FetchHandler
    from penstock.broker.fetch.codec import FetchRequest


def remember(
    handler: FetchHandler, connection: Connection, request: FetchRequest, context: FetchContext, results: list[Any],
    position: int, end: int,
) -> None:  # fmt: skip
    """After a general fetch was read: whether the next one may take the short way."""
    session = context.session
    if not request.partitions and not request.forgotten and session is not None:
        return  # a session goes on as it was
    connection.usual_fetch = None
    if request.min_bytes > 1 or len(request.partitions) != 1:
        return
    if session is None and (request.session_id, request.session_epoch) != (NO_SESSION, CLOSE_EPOCH):
        return  # it wanted or ended one: the next request will not
    if session is not None and not context.incremental:
        return  # its next request will look different
    asked = request.partitions[0]
    partition = handler.find(request, asked)
    if not isinstance(partition, Partition):
        return
    bound = handler.bound(request)
    if bound == Bound.LOG_END:
        if session is None or not _follows_usually(request.replica_id, partition, asked, results):
            return
    elif asked.last_fetched_epoch != NO_EPOCH or handler.broker.quotas is not None:
        return
    shape = shape_of(request, connection.buffer, position, end, bound)
    if shape is None:
        return
    if bound == Bound.LOG_END and session is not None:
        connection.usual_fetch = UsualFollowerFetch(handler, connection, request, shape, session, partition)
    else:
        connection.usual_fetch = UsualFetch(handler, connection, request, shape, session, partition, bound)
    if session is not None:
        session.usual = connection.usual_fetch


def _follows_usually(replica_id: int, partition: Partition, asked: Any, results: list[Any]) -> bool:
    return (
        replica_id in partition.isr
        # With records of this very epoch its log is a beginning of ours.
        and partition.leader_epoch == asked.current_leader_epoch == asked.last_fetched_epoch
        # Where batches are large the next one will be, too: those are sent from the file.
        and all(fetched.size <= SMALL_REGION_BYTES for _, fetched in results)
    )
