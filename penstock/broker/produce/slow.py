"""Produces that cannot append at once: batches that another process must open, transactions that must be verified,
and requests so large that they are appended and written in slices."""

from __future__ import annotations

import asyncio
import logging
from time import perf_counter
from typing import TYPE_CHECKING, Any

from penstock.broker.network.connection import Connection
from penstock.broker.network.large_frames import FrameMemory
from penstock.broker.network.slices import SLICE_SECONDS
from penstock.broker.produce.checks import ATTRIBUTES_AT, CODEC_MASK, HEADER_BYTES, first_batch, has_transactional_batch
from penstock.broker.produce.codec import PartitionResult, ProduceRequest
from penstock.broker.produce.pending import PendingProduce
from penstock.cluster.topic_names import INTERNAL_TOPICS
from penstock.log.validation import needs_inspection
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.api.produce import ProduceHandler
    from penstock.broker.produce.transactional import Verification

logger = logging.getLogger(__name__)

ALWAYS_QUICK_BYTES = 4 * 1024  # so little is opened at once, if it is not compressed
AT_ONCE_BYTES = 2 * 1024 * 1024  # written by one wake-up: more goes in slices
AT_ONCE_PARTITIONS = 500

Topics = list[tuple[bytes, list[tuple[int, Any]]]]
"""Topic → (partition, its records)."""


class SlowProduce:
    """The way that waits, for a handler that does the appends."""

    def __init__(self, handler: ProduceHandler) -> None:
        self._handler = handler
        self._broker = handler.broker
        self._dispatcher = handler.dispatcher

    def must_take(self, request: ProduceRequest, connection: Connection, version: int, size: int) -> bool:
        """Whether it belongs to a transaction, or would hold up the loop: by its size, its many partitions, or a batch
        so large, and of such a topic, that checking it takes long."""
        if request.transactional_id is not None or size > AT_ONCE_BYTES:
            return True
        if sum([len(partitions) for _, partitions in request.topics]) > AT_ONCE_PARTITIONS:
            return True
        for name, partitions in request.topics:
            for index, start, size in partitions:
                if size <= ALWAYS_QUICK_BYTES and (
                    size < HEADER_BYTES or not connection.buffer[start + ATTRIBUTES_AT] & CODEC_MASK
                ):
                    continue
                topic = self._handler.topic_name(name, version)
                partition: Any = None if topic is None else self._broker.replicas.partitions.get((topic, index))
                if partition is not None and needs_inspection(
                    connection.view[start : start + size], partition.log.config
                ):
                    return True
        return False

    def start(self, connection: Connection, pending: PendingProduce, request: ProduceRequest) -> None:
        """Copy what the request holds: the receive buffer is reused while we wait."""
        authorizer = self._handler.authorizer
        transactional_id = request.transactional_id
        if (
            authorizer is not None
            and transactional_id is not None
            and has_transactional_batch(request, connection.buffer)
            and not authorizer.may(connection, "WRITE", "TRANSACTIONAL_ID", transactional_id)
        ):
            self._handler.refuse(pending, request, int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
            return
        # A frame in memory of its own is not copied: that memory is ours until we give it back.
        own = connection.buffer if type(connection.buffer) is FrameMemory else None
        keep: Any = memoryview if own is not None else bytes
        topics = [
            (name, [(index, keep(connection.view[start : start + max(size, 0)])) for index, start, size in partitions])
            for name, partitions in request.topics
        ]
        connection.busy = True
        client_id = self._dispatcher.client_id(connection)
        task = self._dispatcher.loop.create_task(self._hold(connection, pending, request, topics, client_id, own))
        self._dispatcher.tasks.add(task)
        task.add_done_callback(self._dispatcher.tasks.discard)

    async def _hold(
        self,
        connection: Connection,
        pending: PendingProduce,
        request: ProduceRequest,
        topics: Topics,
        client_id: str,
        own: FrameMemory | None,
    ) -> None:
        """The work, while its bytes count as those of an unfinished request."""
        held_bytes = sum(len(batch) for _, partitions in topics for _, batch in partitions)
        memory = self._dispatcher.memory
        memory.claimed_bytes += held_bytes
        try:
            await self._work(connection, pending, request, topics, client_id)
        finally:
            memory.release(held_bytes)
            topics.clear()
            if own is not None:
                own.give_back(self._dispatcher.loop)

    async def _work(
        self,
        connection: Connection,
        pending: PendingProduce,
        request: ProduceRequest,
        topics: Topics,
        client_id: str,
    ) -> None:
        try:
            verification: Verification | None = None
            if request.transactional_id is not None:
                await self._broker.coordinators.ensure()
                from penstock.broker.produce.transactional import Verification

                verification = Verification(self._broker)
                await verification.ask(self._broker, request.transactional_id, pending.version, [
                    (topic, index, batch)
                    for name, partitions in topics
                    if (topic := self._handler.topic_name(name, pending.version)) is not None
                    and self._may_write(connection, topic)
                    for index, batch in partitions
                ])  # fmt: skip
            inspections = await self._inspect(connection, topics, pending.version)
            await self._append_all(pending, topics, verification, inspections, client_id)
        except asyncio.CancelledError:
            connection.close()
            raise
        except Exception:
            logger.exception("closing client=%s: a produce failed", connection.client_host)
            self._dispatcher.stats.ran_into_bug("Produce", "closed")
            connection.close()
            return
        self._handler.appended(pending)
        connection.work_done()

    async def _append_all(
        self,
        pending: PendingProduce,
        topics: Topics,
        verification: Verification | None,
        inspections: dict[tuple[str, int], Any],
        client_id: str,
    ) -> None:
        """In slices, each written by itself. Nothing waits between an append and its write, the last one's included:
        somebody else's write in between would fail it unheard."""
        ends, staged_bytes = perf_counter() + SLICE_SECONDS, 0
        for name, partitions in topics:
            topic = self._handler.topic_name(name, pending.version)
            results: list[PartitionResult] = []
            pending.results.append((name, results))
            for index, batch in partitions:
                if staged_bytes and (staged_bytes + len(batch) > AT_ONCE_BYTES or perf_counter() > ends):
                    self._handler.write_slice(pending)
                    await asyncio.sleep(0)
                    ends, staged_bytes = perf_counter() + SLICE_SECONDS, 0
                if topic is not None and not self._may_write(pending.connection, topic):
                    results.append(PartitionResult(index, int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)))
                else:
                    results.append(self._append(topic, index, batch, pending, verification, inspections, client_id))
                staged_bytes += len(batch) + 1
        if staged_bytes > AT_ONCE_BYTES:
            self._handler.write_slice(pending)

    def _may_write(self, connection: Connection, topic: str) -> bool:
        authorizer = self._handler.authorizer
        return authorizer is None or authorizer.may_write(connection, topic)

    async def _inspect(self, connection: Connection, topics: Topics, version: int) -> dict[tuple[str, int], Any]:
        """What another process found in the batches that must be opened and are not small."""
        found: dict[tuple[str, int], Any] = {}
        for name, partitions in topics:
            topic = self._handler.topic_name(name, version)
            if topic is None or not self._may_write(connection, topic):
                continue
            for index, batch in partitions:
                partition: Any = self._broker.replicas.partitions.get((topic, index))
                alone, error, _ = first_batch(batch, version)
                if partition is not None and not error and needs_inspection(alone, partition.log.config):
                    log = partition.log
                    opened = self._broker.inspector.submit(
                        bytes(alone), log.config, self._broker.clock.now_ms(), log.name
                    )
                    found[(topic, index)] = await asyncio.wrap_future(opened)
        return found

    def _append(
        self,
        topic: str | None,
        index: int,
        batch: Any,
        pending: PendingProduce,
        verification: Verification | None,
        inspections: dict[tuple[str, int], Any],
        client_id: str,
    ) -> PartitionResult:
        extra: dict[str, Any] = {}
        if topic is not None:
            verified = None if verification is None else verification.at_append((topic, index))
            if verified is not None:
                if verified.error:
                    return PartitionResult(index, int(verified.error), verified.message)
                extra["guard"] = verified.guard
            inspection = inspections.get((topic, index))
            if inspection is not None:
                extra["inspection"] = inspection
            extra["lent"] = type(batch) is memoryview  # in a frame's own memory, until it is given back
            if topic in INTERNAL_TOPICS and client_id != "__admin_client":
                return PartitionResult(
                    index, int(ErrorCode.INVALID_TOPIC_EXCEPTION), f"Cannot append to internal topic {topic}"
                )
        return self._handler.append(topic, index, batch, pending.version, pending.acks, pending.connection, **extra)
