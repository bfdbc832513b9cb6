"""The follower's loop: one fetcher per leader broker, for all partitions followed from it.

One fetch is in flight at a time. An answer is taken in and the next fetch sent in the very callback that brought it:
what is acknowledged with acks=all waits for this. A task connects, and takes over when an answer needs more than that.
Record bytes go from the received frame into the log as they are. The decisions are in `following` (what an answer
means) and `fetch_plan` (what to ask next).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from penstock.base.clock import Clock
from penstock.client.connection import Connection, Posted
from penstock.client.errors import ClientError, RequestTimedOut
from penstock.protocol import messages
from penstock.protocol.errors import error_name
from penstock.replication import fetch_wire
from penstock.replication.fetch_plan import SESSION_ERRORS, FetchPlan
from penstock.replication.fetch_wire import FetchLimits
from penstock.replication.following import FetchAnswer, Outcome, Position, take_answer, take_leader_offsets
from penstock.replication.partition import Partition
from penstock.replication.throttle import ReplicationQuota

logger = logging.getLogger(__name__)

LATEST, EARLIEST = -1, -2
JOIN_PATIENCE_SECONDS = 0.01
"""How long a new partition waits for the fetch in flight to come back before that one is given up."""


@dataclass(frozen=True)
class FetcherContext:
    """What all fetchers of a broker share."""

    node_id: int
    broker_epoch: Callable[[], int]
    clock: Clock
    limits: FetchLimits
    quota: ReplicationQuota
    connect: Callable[[int], Awaitable[Connection]]
    """Opens a connection to a broker's inter-broker listener, by id."""
    on_failed: Callable[[Partition], None]
    """The own disk refused a write of this partition."""
    back_off_ms: int = 1000
    request_timeout_seconds: float = 30.0


class LeaderFetcher:
    """Follows all partitions led by one broker."""

    def __init__(self, leader_id: int, context: FetcherContext) -> None:
        self.leader_id = leader_id
        self.plan = FetchPlan(context.back_off_ms)
        self._context = context
        self._by_id: dict[tuple[bytes, int], Partition] = {}
        self._changed = asyncio.Event()
        self._connection: Connection | None = None
        self._in_flight: Posted | None = None
        self._deadline = 0.0  # of the fetch in flight
        self._interrupted: asyncio.Future[None] | None = None  # ends when the task has to take over
        self._out_of_range: list[tuple[Partition, Position]] = []
        self._task: asyncio.Task[None] | None = None

    def add(self, partition: Partition) -> None:
        self.plan.add(partition)
        self._by_id[(partition.topic_id.bytes, partition.index)] = partition
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name=f"fetcher-{self.leader_id}")
        if not self._changed.is_set():
            self._changed.set()
            if self._in_flight is not None:
                asyncio.get_running_loop().call_later(JOIN_PATIENCE_SECONDS, self._give_up, self._in_flight)

    def remove(self, partition: Partition) -> None:
        self.plan.remove(partition)
        self._by_id.pop((partition.topic_id.bytes, partition.index), None)

    def reconnect(self) -> None:
        """Give up the connection; what is followed stays."""
        self._disconnect()
        self._interrupt(None)
        self._changed.set()

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._disconnect()

    async def _run(self) -> None:
        while True:
            try:
                await self._wait_until_active()
                await self._fetch_until_interrupted()
            except (ClientError, OSError, TimeoutError, ValueError) as error:
                logger.info("fetching from broker %d failed, trying again: %s", self.leader_id, error)
                self._disconnect()
                await self._pause(self._context.back_off_ms / 1000)
            except asyncio.CancelledError:
                raise
            except Exception:
                logger.exception("the fetcher for broker %d met a fault that it does not know", self.leader_id)
                self._disconnect()
                await self._pause(self._context.back_off_ms / 1000)

    async def _fetch_until_interrupted(self) -> None:
        """Begin, and let the callbacks go on; then do what only a task can."""
        connection = self._connection
        if connection is None or connection.closed or connection.expired:
            self._disconnect()
            connection = self._connection = await self._context.connect(self.leader_id)
        interrupted = self._interrupted = asyncio.get_running_loop().create_future()
        try:
            if not self._send_next():
                return
            while not interrupted.done():
                left_s = self._deadline - self._context.clock.monotonic()
                if left_s <= 0:
                    raise RequestTimedOut(f"broker {self.leader_id} does not answer a fetch")
                await asyncio.wait([interrupted], timeout=left_s)
            interrupted.result()
        finally:
            self._interrupted = None
        out_of_range, self._out_of_range = self._out_of_range, []
        for partition, asked in out_of_range:
            outcome = await self._ask_offsets(connection, partition, asked)
            self.plan.settled((partition.topic, partition.index), outcome, self._now_ms())

    def _send_next(self) -> bool:
        """Whether there was something to ask for and a connection that is good for it."""
        context, connection = self._context, self._connection
        if connection is None or connection.expired:
            return False
        self._hold_back_throttled()
        plan = self.plan.next(self._now_ms())
        self._changed.clear()
        if not self.plan.active:
            return False
        limits = context.limits
        body = fetch_wire.encode_request(plan, limits, context.node_id, context.broker_epoch())
        self._deadline = context.clock.monotonic() + limits.max_wait_ms / 1000 + context.request_timeout_seconds
        self._in_flight = connection.post(
            fetch_wire.FETCH_KEY, fetch_wire.FETCH_VERSION, body, self._answered, self._interrupt
        )
        return True

    def _answered(self, body: memoryview) -> None:
        """The hot path: called by the transport."""
        self._in_flight = None
        try:
            self._take(body)
            if self._out_of_range or not self._send_next():
                self._interrupt(None)
        except Exception as error:
            self._interrupt(error)

    def _interrupt(self, error: BaseException | None) -> None:
        """Let the task go on, with this error if there is one."""
        self._in_flight = None
        interrupted = self._interrupted
        if interrupted is None or interrupted.done():
            return
        if error is None:
            interrupted.set_result(None)
        else:
            interrupted.set_exception(error)

    def _take(self, body: memoryview) -> None:
        head = fetch_wire.decode_head(body)
        if not self.plan.answered(head.error, head.session_id):
            if head.error not in SESSION_ERRORS:
                raise ClientError(f"the leader answered with {error_name(head.error)}")
            return
        now_ms = self._now_ms()
        for topic_id, index, answer in fetch_wire.decode_partitions(body):
            partition = self._by_id.get((topic_id, index))
            if partition is None:
                continue
            asked = self.plan.asked.get((partition.topic, index))
            if asked is None:
                continue
            outcome = take_answer(partition, asked, answer)
            if outcome is Outcome.ASK_OFFSETS:
                self._out_of_range.append((partition, asked))
                continue
            self._settle(partition, outcome, answer, now_ms)

    def _settle(self, partition: Partition, outcome: Outcome, answer: FetchAnswer, now_ms: float) -> None:
        context = self._context
        if len(answer.records) and context.quota.throttles(partition.topic, partition.index):
            context.quota.record(len(answer.records), context.clock.monotonic())
        if outcome is Outcome.FAILED:
            context.on_failed(partition)
        elif outcome is Outcome.BACK_OFF:
            logger.info("%r: leader %d answered %d, trying again", partition, self.leader_id, answer.error)
        elif outcome is Outcome.FETCH and answer.diverging_epoch is not None:
            logger.info("%r: log diverged, cut to offset %d", partition, partition.log.log_end_offset)
        self.plan.settled((partition.topic, partition.index), outcome, now_ms)

    async def _ask_offsets(self, connection: Connection, partition: Partition, asked: Position) -> Outcome:
        """Where the leader's log starts and ends: our position is in neither."""
        found = []
        for timestamp in (LATEST, EARLIEST):
            api = messages.api("list_offsets")
            wanted = api.ListOffsetsPartition(
                partition_index=partition.index, current_leader_epoch=asked.leader_epoch, timestamp=timestamp
            )
            request = api.Request(
                replica_id=self._context.node_id,
                topics=[api.ListOffsetsTopic(name=partition.topic, partitions=[wanted])],
            )
            answer = (await connection.request("list_offsets", request)).topics[0].partitions[0]
            if answer.error_code:
                return Outcome.BACK_OFF
            found.append(answer.offset)
        leader_end, leader_start = found
        outcome = take_leader_offsets(partition, asked, leader_start, leader_end)
        logger.warning(
            "%r: position %d is outside of the leader's log %d..%d; now at %d",
            partition,
            asked.fetch_offset,
            leader_start,
            leader_end,
            partition.log.log_end_offset,
        )
        return outcome

    def _hold_back_throttled(self) -> None:
        """Over its rate, a follower leaves out throttled partitions until the window has moved on."""
        quota, now = self._context.quota, self._context.clock.monotonic()
        if not quota.exceeded(now):
            return
        for key, partition in list(self.plan.partitions.items()):
            if quota.throttles(*key) and partition.node_id not in partition.isr:
                self.plan.throttle(key, now * 1000 + 200)

    async def _wait_until_active(self) -> None:
        while not self.plan.active:
            if not len(self.plan):
                self._disconnect()
            now_ms = self._now_ms()
            wake_ms = self.plan.next_wake_ms()
            if wake_ms <= now_ms:
                return
            await self._pause(min((wake_ms - now_ms) / 1000, 60.0))

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            pass
        self._changed.clear()

    def _give_up(self, fetch: Posted) -> None:
        """A partition joined: begin a new session that has it."""
        if self._in_flight is fetch:
            self._disconnect()
            self._interrupt(None)

    def _disconnect(self) -> None:
        if self._in_flight is not None:
            self._in_flight.cancel()
            self._in_flight = None
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        self.plan.reset()

    def _now_ms(self) -> float:
        return self._context.clock.monotonic() * 1000


class Fetchers:
    """All fetchers of a broker, by leader."""

    def __init__(self, context: FetcherContext) -> None:
        self._context = context
        self._fetchers: dict[int, LeaderFetcher] = {}
        self._leader_of: dict[Partition, int] = {}

    def follow(self, partition: Partition) -> None:
        """Fetch this partition from its (new) leader; from nobody if there is none."""
        self.unfollow(partition)
        if partition.leader_id < 0 or partition.leader_id == self._context.node_id:
            return
        fetcher = self._fetchers.get(partition.leader_id)
        if fetcher is None:
            fetcher = self._fetchers[partition.leader_id] = LeaderFetcher(partition.leader_id, self._context)
        self._leader_of[partition] = partition.leader_id
        fetcher.add(partition)

    def unfollow(self, partition: Partition) -> None:
        leader_id = self._leader_of.pop(partition, None)
        if leader_id is not None:
            self._fetchers[leader_id].remove(partition)

    def broker_moved(self, broker_id: int) -> None:
        """A broker is gone or came back: an old connection may hang without saying anything about the new one."""
        fetcher = self._fetchers.get(broker_id)
        if fetcher is not None:
            fetcher.reconnect()

    async def stop(self) -> None:
        fetchers = list(self._fetchers.values())
        self._fetchers.clear()
        self._leader_of.clear()
        await asyncio.gather(*(fetcher.stop() for fetcher in fetchers))
