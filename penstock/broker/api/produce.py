"""Produce (key 0), versions 3–13; advertised from 0 because librdkafka's version check needs it.

Batches go to their logs as views into the receive buffer. The log keeps a private copy of small ones and borrows large
ones until it has written them. The answer is made after the write at the end of the wake-up, so that nothing unwritten
is acknowledged; acks=all waits for the high watermark. What must wait before it appends takes `produce.slow`.
v7: zstd allowed · v8: record errors · v10: leader hints (KIP-951) · v12: implicit transaction add (KIP-890)
· v13: topic ids.
"""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from penstock.broker.api.spec import ApiSpec
from penstock.broker.metadata.leader_hints import leader_hints
from penstock.broker.network.connection import Connection
from penstock.broker.network.wire import UNREADABLE, MalformedFrame
from penstock.broker.produce.checks import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    HEADER_BYTES,
    TRANSACTIONAL,
    first_batch,
    has_transactional_batch,
    refused_by_head,
)
from penstock.broker.produce.codec import (
    FIRST_WITH_TOPIC_ID,
    PartitionResult,
    ProduceRequest,
    encode_produce,
    parse_produce,
)
from penstock.broker.produce.pending import PendingProduce, ShapedProduce
from penstock.broker.produce.shape import ProduceShape, shape_of
from penstock.broker.produce.slow import ALWAYS_QUICK_BYTES, SlowProduce
from penstock.cluster.topic_names import INTERNAL_TOPICS
from penstock.protocol.errors import ErrorCode
from penstock.security.quota_limits import PRODUCE

if TYPE_CHECKING:
    from penstock.broker.dispatch import Dispatcher
    from penstock.broker.routes import Route

API = ApiSpec(0, "Produce", 3, 13, advertised_min_version=0)

LEND_BYTES = 16 * 1024  # batches from here on are written straight from the receive buffer

_NONE = 0
_UNKNOWN_TOPIC_OR_PARTITION = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_NOT_LEADER = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
_NO_TRANSACTIONAL_ID = int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
_FORBIDDEN = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
_STORAGE_ERROR = int(ErrorCode.KAFKA_STORAGE_ERROR)


def hot_handler(dispatcher: Dispatcher, route: Route) -> Any:
    handler = ProduceHandler(dispatcher, route)
    route.metered = handler.handle_metered
    route.contents_matter = handler.contents_matter
    return handler.handle_frame


class ProduceHandler:
    def __init__(self, dispatcher: Dispatcher, route: Route) -> None:
        self.dispatcher = dispatcher
        self.broker = dispatcher.broker
        self.stats = dispatcher.stats
        self.api_stats = route.stats
        self.authorizer = self.broker.authorizer
        self.meters_time = False  # whether quotas on time are set
        self.slow = SlowProduce(self)
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
        pending = PendingProduce(
            connection,
            correlation_id,
            version,
            request.acks,
            request.timeout_ms,
            self.dispatcher.now,
            self.api_stats,
        )
        connection.slots.append(pending)
        self.stats.produced_bytes.value += end - position
        if request.transactional_id is None and has_transactional_batch(request, connection.buffer):
            self.refuse(pending, request, _NO_TRANSACTIONAL_ID)
            return
        if self.slow.must_take(request, connection, version, end - position):
            self.slow.start(connection, pending, request)
            return
        view = connection.view
        authorizer = self.authorizer
        for name, partitions in request.topics:
            topic = self.topic_name(name, version)
            if authorizer is not None and topic is not None and not authorizer.may_write(connection, topic):
                pending.results.append((name, [PartitionResult(index, _FORBIDDEN) for index, _, _ in partitions]))
                continue
            results = [
                self.append(
                    topic, index, view[start : start + size] if size > 0 else b"", version, request.acks, connection
                )
                for index, start, size in partitions
            ]
            pending.results.append((name, results))
            appended_to = results[0].partition if results else None
            if appended_to is not None and topic is not None and topic not in INTERNAL_TOPICS:
                connection.produce_shape = shape_of(request, connection.buffer, version, position, appended_to)
        self.appended(pending)

    def contents_matter(self, connection: Connection, version: int, position: int, held: int, end: int) -> bool:
        """Of a large frame the first `held` bytes are here, and nothing but zeros behind: False if that is enough to
        know that its records will be refused."""
        try:
            request = parse_produce(connection.buffer, version, position, end, most=1)
        except (MalformedFrame, *UNREADABLE):
            return True
        parts = [(name, *part) for name, partitions in request.topics for part in partitions]
        if len(parts) != 1 or request.transactional_id is not None:
            return True
        name, index, start, size = parts[0]
        topic = self.topic_name(name, version)
        if start + HEADER_BYTES > held or size < HEADER_BYTES or topic is None:
            return True
        partition: Any = self.broker.replicas.partitions.get((topic, index))
        records = connection.view[start : start + size]
        return partition is None or not refused_by_head(records, partition.log.max_message_bytes)

    def handle_metered(
        self, connection: Connection, version: int, correlation_id: int, position: int, end: int
    ) -> None:
        """The same where quotas are set. What comes in one wake-up is counted together, with the next one's first."""
        dispatcher = self.dispatcher
        if connection.metered_at is dispatcher.now and not self.meters_time:
            connection.unmetered_bytes += end - position
            # handle_frame for the usual shape, spelled out: a call less for every produce
            shape = connection.produce_shape
            if shape is not None:
                records = shape.match(connection.buffer, version, position, end)
                if records is not None and self._append_shaped(connection, shape, correlation_id, *records):
                    return
            self.handle_frame(connection, version, correlation_id, position, end)
            return
        quotas = self.broker.quotas
        if quotas is None:
            self.handle_frame(connection, version, correlation_id, position, end)
            return
        self.meters_time = quotas.measures_time
        connection.metered_at = dispatcher.now
        client_id_at = dispatcher.header_position + 8
        known = connection.produce_meter
        if known is None or known[0] is not quotas.limits or not connection.buffer.startswith(known[1], client_id_at):
            client_id = dispatcher.client_id(connection)
            head = bytes(connection.view[client_id_at : client_id_at + 2 + len(client_id.encode())])
            known = connection.produce_meter = (quotas.limits, head, quotas.meter(PRODUCE, connection, client_id))
        pause_ms = 0
        used = connection.unmetered_bytes + end - dispatcher.header_position
        connection.unmetered_bytes = 0
        if known[2] is not None and (pause := known[2].record(used, dispatcher.now)):
            pause_ms = quotas.told(PRODUCE, pause)
        if not pause_ms and not quotas.measures_time:
            self.handle_frame(connection, version, correlation_id, position, end)
            return
        connection.produce_shape = None  # answers of the usual shape tell no pause
        began = perf_counter()
        self.handle_frame(connection, version, correlation_id, position, end)
        pending = connection.slots[-1] if connection.slots else None
        if isinstance(pending, PendingProduce):
            connection.produce_shape = None
            if pending.acks:
                client_id = dispatcher.client_id(connection)
                pause_ms = max(pause_ms, quotas.worked(connection, client_id, perf_counter() - began))
            pending.throttle_ms = pause_ms

    def refuse(self, pending: PendingProduce, request: ProduceRequest, error: int) -> None:
        """The same error for all of it."""
        pending.results = [
            (name, [PartitionResult(index, error) for index, _, _ in partitions]) for name, partitions in request.topics
        ]
        self.appended(pending)

    def _append_shaped(
        self, connection: Connection, shape: ProduceShape, correlation_id: int, start: int, size: int
    ) -> bool:
        """Append a request of the usual shape; False if it must go the general way (nothing has happened then)."""
        buffer = connection.buffer
        partition = shape.partition
        if size < HEADER_BYTES:
            return False
        attributes = buffer[start + ATTRIBUTES_AT]
        if attributes & TRANSACTIONAL or (
            (attributes & CODEC_MASK or size > ALWAYS_QUICK_BYTES) and partition.log.may_open
        ):
            return False
        if size < LEND_BYTES:
            batch: Any = buffer[start : start + size]
        else:
            batch = connection.view[start : start + size]
            connection.has_lent = True
        appended = self.broker.replicas.append_lent(partition, batch, shape.acks)
        if appended.error:
            # Appending again would change nothing, but the general way tells more about the error.
            return False
        pending = ShapedProduce(connection, correlation_id, shape, appended, self.dispatcher.now, self.api_stats)
        connection.slots.append(pending)
        self.pending.append(pending)
        self.stats.produced_bytes.value += size
        if not connection.dirty:
            connection.mark_dirty()
        return True

    def topic_name(self, name: bytes, version: int) -> str | None:
        if version >= FIRST_WITH_TOPIC_ID:
            found: str | None = self.broker.image.topic_names_by_bytes.get(name)
            return found
        return str(name, "utf-8", "replace")

    def append(
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
        batch, result.error, result.message = first_batch(batch, version)
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

    def appended(self, pending: PendingProduce) -> None:
        self.pending.append(pending)
        pending.connection.mark_dirty()

    def write_slice(self, pending: PendingProduce) -> None:
        """Write what was appended so far, of a request that goes on after others had their turn."""
        failed = self.broker.replicas.write_staged()
        if failed:
            self._void(pending, failed)

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
        batches = records = 0
        pending_now, self.pending = self.pending, []
        for pending in pending_now:
            if type(pending) is ShapedProduce:
                shape = pending.shape
                _, base_offset, last_offset, append_time_ms, log_start_offset, _, _, duplicate, _ = pending.appended
                if not duplicate:
                    batches += 1
                    records += last_offset - base_offset + 1
                if not failed and (shape.acks != -1 or shape.partition.log.high_watermark > last_offset):
                    pending.parts = (
                        (shape.answer(pending.correlation_id, base_offset, append_time_ms, log_start_offset),)
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
        self.stats.produced_batches.value += batches
        self.stats.produced_records.value += records

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
        if pending.throttle_ms:
            pending.connection.mute(pending.throttle_ms / 1000)
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
                    self.broker, pending.connection, [(n, self.topic_name(n, pending.version), i) for n, i in lost]
                )
        answer = encode_produce(pending.version, pending.correlation_id, pending.results, pending.throttle_ms, leaders)
        (pending.stands_for or pending).parts = (answer,)
