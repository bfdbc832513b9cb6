"""Produce (key 0), versions 3–13; advertised from 0 because librdkafka's version check needs it.

Batches go to their logs as views into the receive buffer; the log keeps a private copy. The answer is made after the
write at the end of the wake-up, so that nothing unwritten is acknowledged; acks=all waits for the high watermark.
v7: zstd allowed · v8: record errors · v10: leader hints (KIP-951) · v12: implicit transaction add (KIP-890)
· v13: topic ids.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Any

from penstock.broker.api.spec import ApiSpec
from penstock.broker.connection import Connection, Slot
from penstock.broker.leader_hints import leader_hints
from penstock.broker.produce_codec import (
    FIRST_WITH_TOPIC_ID,
    PartitionResult,
    ProduceRequest,
    Results,
    encode_produce,
    parse_produce,
)
from penstock.broker.produce_shape import ProduceShape, shape_of
from penstock.broker.wire import UNREADABLE, MalformedFrame
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.dispatch import Dispatcher, Route

logger = logging.getLogger(__name__)

API = ApiSpec(0, "Produce", 3, 13, advertised_min_version=0)

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
OPEN_IN_WORKER_BYTES = 64 * 1024  # batches that must be opened and are larger go to a thread

_NONE = 0
_UNKNOWN_TOPIC_OR_PARTITION = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_NOT_LEADER = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
_INVALID_RECORD = int(ErrorCode.INVALID_RECORD)
_NO_TRANSACTIONAL_ID = int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
_STORAGE_ERROR = int(ErrorCode.KAFKA_STORAGE_ERROR)

_MAGIC_AT = 16
_ATTRIBUTES_AT = 22  # the low byte
_TRANSACTIONAL = 0x10
_HEADER_BYTES = 61
_ZSTD = 4
_LOG_OVERHEAD = 12
_SMALLEST_LENGTH = 14
_LENGTH = Struct(">i").unpack_from


class PendingProduce(Slot):
    """A produce between its appends and its answer."""

    __slots__ = ("acks", "connection", "correlation_id", "results", "stands_for", "timeout_ms", "version")

    connection: Connection
    correlation_id: int
    version: int
    acks: int
    timeout_ms: int
    results: Results
    stands_for: Slot | None  # the shaped one in the connection's order that it replaces; None: it stands there itself


class ShapedProduce(Slot):
    """The same for a request of its connection's usual shape: one partition, appended without error."""

    __slots__ = (
        "append_time_ms",
        "base_offset",
        "connection",
        "correlation_id",
        "log_start_offset",
        "required_offset",
        "shape",
    )

    connection: Connection
    correlation_id: int
    shape: ProduceShape
    base_offset: int
    append_time_ms: int
    log_start_offset: int
    required_offset: int

    def as_general(self) -> PendingProduce:
        """What it takes to answer it with an error, or later."""
        shape = self.shape
        result = PartitionResult(shape.index)
        result.base_offset = self.base_offset
        result.append_time_ms = self.append_time_ms
        result.log_start_offset = self.log_start_offset
        result.required_offset = self.required_offset
        result.partition = shape.partition
        general = PendingProduce()
        general.stands_for = self
        general.connection = self.connection
        general.correlation_id = self.correlation_id
        general.version = shape.version
        general.acks = shape.acks
        general.timeout_ms = shape.timeout_ms
        general.results = [(shape.name, [result])]
        return general


def hot_handler(dispatcher: Dispatcher, route: Route) -> Any:
    return ProduceHandler(dispatcher, route).handle_frame


class ProduceHandler:
    def __init__(self, dispatcher: Dispatcher, route: Route) -> None:
        self.dispatcher = dispatcher
        self.broker = dispatcher.broker
        self.stats = dispatcher.stats
        self.api_stats = route.stats
        self.pending: list[PendingProduce | ShapedProduce] = []
        dispatcher.before_send.append(self.complete)

    def handle_frame(self, connection: Connection, version: int, correlation_id: int, position: int, end: int) -> None:
        shape = connection.produce_shape
        if shape is not None:
            records = shape.match(connection.buffer, version, position, end)
            if records is not None and self._append_shaped(connection, shape, correlation_id, *records):
                return
        try:
            request = parse_produce(connection.buffer, version, position, end)
        except UNREADABLE as error:
            raise MalformedFrame(f"produce v{version}: {error}") from error
        pending = PendingProduce()
        pending.stands_for = None
        pending.parts = None
        pending.started = self.dispatcher.now
        pending.stats = self.api_stats
        pending.connection = connection
        pending.correlation_id = correlation_id
        pending.version = version
        pending.acks = request.acks
        pending.timeout_ms = request.timeout_ms
        pending.results = []
        connection.slots.append(pending)
        self.stats.produced_bytes.value += end - position
        if request.transactional_id is not None or self._must_open(request, connection, version):
            self._start_slow(connection, pending, request)
            return
        view = connection.view
        if _has_transactional_batch(request, connection.buffer):
            pending.results = [
                (name, [PartitionResult(index, _NO_TRANSACTIONAL_ID) for index, _, _ in partitions])
                for name, partitions in request.topics
            ]
            self._appended(pending)
            return
        for name, partitions in request.topics:
            topic = self._topic_name(name, version)
            results = [
                self._append(
                    topic, index, view[start : start + size] if size > 0 else b"", version, request.acks, connection
                )
                for index, start, size in partitions
            ]
            pending.results.append((name, results))
            appended_to = results[0].partition if results else None
            if appended_to is not None and topic is not None and topic not in INTERNAL_TOPICS:
                connection.produce_shape = shape_of(request, connection.buffer, version, position, topic, appended_to)
        self._appended(pending)

    def _append_shaped(
        self, connection: Connection, shape: ProduceShape, correlation_id: int, start: int, size: int
    ) -> bool:
        """Append a request of the usual shape; False if it must go the general way (nothing has happened then)."""
        replicas = self.broker.replicas
        buffer = connection.buffer
        if (
            size > OPEN_IN_WORKER_BYTES
            or size < _HEADER_BYTES
            or buffer[start + _MAGIC_AT] != 2
            or _LENGTH(buffer, start + 8)[0] != size - _LOG_OVERHEAD
            or shape.version < 7
            or buffer[start + _ATTRIBUTES_AT] & _TRANSACTIONAL
            or replicas.partitions.get((shape.topic, shape.index)) is not shape.partition
        ):
            return False
        appended = replicas.append(shape.topic, shape.index, connection.view[start : start + size], shape.acks)
        if appended.error:
            # Appending again would change nothing, but the general way tells more about the error.
            return False
        pending = ShapedProduce()
        pending.started = self.dispatcher.now
        pending.stats = self.api_stats
        pending.connection = connection
        pending.correlation_id = correlation_id
        pending.shape = shape
        pending.base_offset = appended.base_offset
        pending.append_time_ms = appended.append_time_ms
        pending.log_start_offset = appended.log_start_offset
        pending.required_offset = appended.last_offset + 1
        connection.slots.append(pending)
        self.stats.produced_bytes.value += size
        if not appended.duplicate:
            self.stats.produced_batches.value += 1
            self.stats.produced_records.value += appended.last_offset - appended.base_offset + 1
        self.pending.append(pending)
        if not connection.dirty:
            connection.mark_dirty()
        return True

    def _topic_name(self, name: bytes, version: int) -> str | None:
        if version >= FIRST_WITH_TOPIC_ID:
            found: str | None = self.broker.image.topic_names_by_bytes.get(name)
            return found
        return str(name, "utf-8", "replace")

    def _append(
        self, topic: str | None, index: int, batch: Any, version: int, acks: int, connection: Connection, **extra: Any
    ) -> PartitionResult:
        """Kafka's checks in Kafka's order, then the append."""
        result = PartitionResult(index)
        if topic is None:
            result.error = int(ErrorCode.UNKNOWN_TOPIC_ID)
            return result
        replicas = self.broker.replicas
        partition: Any = replicas.partitions.get((topic, index))
        if partition is None and replicas.image.partition(topic, index) is None:
            result.error = _UNKNOWN_TOPIC_OR_PARTITION
            return result
        batch, result.error, result.message = _first_batch(batch, version)
        if result.error:
            return result
        if acks not in (-1, 0, 1):
            result.error = int(ErrorCode.INVALID_REQUIRED_ACKS)
            return result
        if topic in INTERNAL_TOPICS and self.dispatcher.client_id(connection) != "__admin_client":
            result.error = int(ErrorCode.INVALID_TOPIC_EXCEPTION)
            result.message = f"Cannot append to internal topic {topic}"
            return result
        appended = replicas.append(topic, index, batch, acks, **extra)
        error = int(appended.error)
        result.error = error
        result.log_start_offset = appended.log_start_offset
        if error:
            result.message = appended.message
            result.record_errors = appended.record_errors
            return result
        if not appended.duplicate:
            self.stats.produced_batches.value += 1
            self.stats.produced_records.value += appended.last_offset - appended.base_offset + 1
        result.base_offset = appended.base_offset
        result.append_time_ms = appended.append_time_ms
        result.partition = partition
        result.required_offset = appended.last_offset + 1
        return result

    def _appended(self, pending: PendingProduce) -> None:
        self.pending.append(pending)
        pending.connection.mark_dirty()

    # After the write ---------------------------------------------------------------------------------------------

    def complete(self) -> None:
        """Write what the wake-up staged, then answer its produces or park them until they are committed."""
        replicas = self.broker.replicas
        replicas.write_staged()
        failed = replicas.unclaimed_failures  # also of coordinators that wrote between our appends and now
        if failed:
            replicas.unclaimed_failures = {}
        if not self.pending:
            return
        pending_now, self.pending = self.pending, []
        for pending in pending_now:
            if type(pending) is ShapedProduce:
                shape = pending.shape
                if not failed and (shape.acks != -1 or shape.partition.log.high_watermark >= pending.required_offset):
                    pending.parts = (
                        (
                            shape.answer(
                                pending.correlation_id,
                                pending.base_offset,
                                pending.append_time_ms,
                                pending.log_start_offset,
                            ),
                        )
                        if shape.acks
                        else ()
                    )
                    continue
                pending = pending.as_general()
            assert isinstance(pending, PendingProduce)
            if failed:
                self._void(pending, failed)
            if pending.acks == -1 and self._park(pending):
                continue
            self._answer(pending)

    def _void(self, pending: PendingProduce, failed: Any) -> None:
        for _, results in pending.results:
            for result in results:
                if result.partition in failed:
                    result.error, result.base_offset, result.append_time_ms = _STORAGE_ERROR, -1, -1
                    result.message = str(failed[result.partition])

    def _park(self, pending: PendingProduce) -> bool:
        """Whether the answer must wait for followers."""
        waiting = [
            result
            for _, results in pending.results
            for result in results
            if result.error == _NONE and result.partition.log.high_watermark < result.required_offset
        ]
        if not waiting:
            return False
        self.broker.replicas.parking.until_committed(
            [(result.partition, result.required_offset) for result in waiting],
            pending.timeout_ms,
            partial(self._committed, pending, waiting),
        )
        return True

    def _committed(self, pending: PendingProduce, waiting: list[PartitionResult], errors: list[int]) -> None:
        for result, error in zip(waiting, errors, strict=True):
            if error:
                result.error, result.base_offset, result.append_time_ms = error, -1, -1
                result.log_start_offset = -1
        if not pending.connection.closed:
            self._answer(pending)
            pending.connection.mark_dirty()

    def _answer(self, pending: PendingProduce) -> None:
        failed = [result.error for _, results in pending.results for result in results if result.error]
        for error in failed:
            self.api_stats.error(error)
        if pending.acks == 0:
            (pending.stands_for or pending).parts = ()
            if failed:
                pending.connection.close()  # the only way to tell a client that expects no answer
            return
        leaders = None
        if failed and pending.version >= 10:
            lost = [(name, r.index) for name, results in pending.results for r in results if r.error == _NOT_LEADER]
            if lost:
                leaders = leader_hints(
                    self.broker, pending.connection, [(n, self._topic_name(n, pending.version), i) for n, i in lost]
                )
        answer = encode_produce(pending.version, pending.correlation_id, pending.results, 0, leaders)
        (pending.stands_for or pending).parts = (answer,)

    # The slow way: batches that must be opened, transactions that must be verified ----------------------------------

    def _must_open(self, request: ProduceRequest, connection: Connection, version: int) -> bool:
        """Whether a batch is so large, and of such a topic, that checking it would hold up the loop."""
        for name, partitions in request.topics:
            for index, start, size in partitions:
                if size <= OPEN_IN_WORKER_BYTES:
                    continue
                topic = self._topic_name(name, version)
                partition: Any = None if topic is None else self.broker.replicas.partitions.get((topic, index))
                if partition is not None:
                    from penstock.log.validation import needs_inspection

                    if needs_inspection(connection.view[start : start + size], partition.log.config):
                        return True
        return False

    def _start_slow(self, connection: Connection, pending: PendingProduce, request: ProduceRequest) -> None:
        """Copy what the request holds: the receive buffer is reused while we wait."""
        copied = [
            (name, [(index, bytes(connection.view[start : start + max(size, 0)])) for index, start, size in partitions])
            for name, partitions in request.topics
        ]
        connection.busy = True
        client_id = self.dispatcher.client_id(connection)
        task = self.dispatcher.loop.create_task(self._slow(connection, pending, request, copied, client_id))
        self.dispatcher.tasks.add(task)
        task.add_done_callback(self.dispatcher.tasks.discard)

    async def _slow(
        self,
        connection: Connection,
        pending: PendingProduce,
        request: ProduceRequest,
        topics: list[tuple[bytes, list[tuple[int, bytes]]]],
        client_id: str,
    ) -> None:
        try:
            guards: dict[tuple[str, int], Any] = {}
            if request.transactional_id is not None:
                await self.broker.coordinators.ensure()
                from penstock.broker.transactional_produce import verify

                guards = await verify(self.broker, request.transactional_id, pending.version, [
                    (topic, index, batch)
                    for name, partitions in topics
                    if (topic := self._topic_name(name, pending.version)) is not None
                    for index, batch in partitions
                ])  # fmt: skip
            for name, partitions in topics:
                topic = self._topic_name(name, pending.version)
                results = []
                for index, batch in partitions:
                    results.append(await self._append_slowly(topic, index, batch, pending, guards, client_id))
                pending.results.append((name, results))
        except asyncio.CancelledError:
            connection.close()
            raise
        except Exception:
            logger.exception("closing client=%s: a produce failed", connection.client_host)
            connection.close()
            return
        self._appended(pending)
        connection.busy = False
        connection.loop.call_soon(connection.resume)

    async def _append_slowly(
        self,
        topic: str | None,
        index: int,
        batch: bytes,
        pending: PendingProduce,
        guards: dict[tuple[str, int], Any],
        client_id: str,
    ) -> PartitionResult:
        extra: dict[str, Any] = {}
        if topic is not None:
            verified = guards.get((topic, index))
            if verified is not None:
                if verified.error:
                    return PartitionResult(index, int(verified.error), verified.message)
                extra["guard"] = verified.guard
            partition: Any = self.broker.replicas.partitions.get((topic, index))
            if partition is not None and len(batch) > OPEN_IN_WORKER_BYTES and not _first_batch(batch, 13)[1]:
                from penstock.log.validation import inspect, needs_inspection

                if needs_inspection(batch, partition.log.config):
                    extra["inspection"] = await self.dispatcher.loop.run_in_executor(
                        None, inspect, batch, partition.log.config, self.broker.clock.now_ms()
                    )
            if topic in INTERNAL_TOPICS and client_id != "__admin_client":
                return PartitionResult(
                    index, int(ErrorCode.INVALID_TOPIC_EXCEPTION), f"Cannot append to internal topic {topic}"
                )
        return self._append(topic, index, batch, pending.version, pending.acks, pending.connection, **extra)


def _has_transactional_batch(request: ProduceRequest, buffer: Any) -> bool:
    """Row 1: transactional records in a request that names no transaction fail the whole request."""
    for _, partitions in request.topics:
        for _, start, size in partitions:
            if (
                size >= _HEADER_BYTES
                and buffer[start + _MAGIC_AT] == 2
                and buffer[start + _ATTRIBUTES_AT] & _TRANSACTIONAL
            ):
                return True
    return False


def _first_batch(records: Any, version: int) -> tuple[Any, int, str | None]:
    """(batch, error, message) for what Kafka checks first: one batch of version 2; zstd only from v7 on.

    A cut batch counts as none, as in Kafka: behind a whole one it is dropped, alone it is an error.
    """
    size = len(records)
    if size < _HEADER_BYTES or records[_MAGIC_AT] != 2 or _LENGTH(records, 8)[0] != size - _LOG_OVERHEAD:
        records, error, message = _cut_out(records, size, version)
        if error:
            return b"", error, message
    if version < 7 and records[_ATTRIBUTES_AT] & 0x07 == _ZSTD:
        return (
            b"",
            int(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
            f"Produce requests with version {version} are not allowed to use ZStandard compression",
        )
    return records, _NONE, None


def _cut_out(records: Any, size: int, version: int) -> tuple[Any, int, str | None]:
    allowed = f"Produce requests with version {version} are only allowed to contain"
    first, error, message = _batch_bytes(records, 0, size)
    if error:
        return b"", error, message
    if not first:
        none = f"Produce requests with version {version} must have at least one record batch per partition"
        return b"", _INVALID_RECORD, none
    if records[_MAGIC_AT] != 2:
        return b"", _INVALID_RECORD, f"{allowed} record batches with magic version 2"
    if first < _HEADER_BYTES:
        return b"", int(ErrorCode.CORRUPT_MESSAGE), f"Record batch of {first} bytes cannot hold its header"
    second, error, message = _batch_bytes(records, first, size)
    if error:
        return b"", error, message
    if second:
        return b"", _INVALID_RECORD, f"{allowed} exactly one record batch per partition"
    return records[:first], _NONE, None


def _batch_bytes(records: Any, position: int, size: int) -> tuple[int, int, str | None]:
    """Bytes of the batch at `position`, 0 if it is not all there; or what is wrong with it."""
    left = size - position
    corrupt = int(ErrorCode.CORRUPT_MESSAGE)
    if left < _LOG_OVERHEAD:
        return 0, _NONE, None
    length = _LENGTH(records, position + 8)[0]
    if length < _SMALLEST_LENGTH:
        return 0, corrupt, f"Record size {length} is less than the minimum record overhead ({_SMALLEST_LENGTH})"
    if left <= _MAGIC_AT:
        return 0, _NONE, None
    magic = records[position + _MAGIC_AT]
    if magic > 2:
        return 0, corrupt, f"Invalid magic found in record: {magic}"
    return (length + _LOG_OVERHEAD if length + _LOG_OVERHEAD <= left else 0), _NONE, None
