"""A transaction is taken over as it is (KIP-939): its former writer must not add to it any more.

By then the coordinator has recorded the take-over, so that it verifies the old pair for nobody. Then, here:

1. the store is asked who leads each partition, as new as the take-over;
2. those leaders are told to refuse the pair, and have to know a leadership at least as new as the store's.

Whoever leads later was elected after the take-over and asks the coordinator before it lets anybody continue an open
transaction (`log.verifications`): a change of leader in between opens nothing. A partition without a leader needs no
word, and one whose leader cannot be reached keeps the take-over waiting until it is deposed.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.client.errors import ClientError
from penstock.cluster import znodes
from penstock.protocol.errors import ErrorCode
from penstock.store.interface import NoNode, StoreError

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.client.connection import Connection

logger = logging.getLogger(__name__)

FENCE_WRITER_KEY = 10003
FENCE_WRITER_FORMAT = 0
PATIENCE_SECONDS = 5.0
RETRY_SECONDS = 0.1
READS_AT_A_TIME = 64

TopicPartition = tuple[str, int]


class Led(NamedTuple):
    """A partition and its leadership as the store has it."""

    topic: str
    partition: int
    leader_epoch: int


async def fence_writer(
    broker: Broker,
    connect: Callable[[int], Awaitable[Connection]],
    producer_id: int,
    producer_epoch: int,
    partitions: Iterable[TopicPartition],
) -> bool:
    """Whether all leaders refuse the pair now; tried for a few seconds."""
    missing = set(partitions)
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                missing -= await _fence_once(broker, connect, producer_id, producer_epoch, missing)
                if not missing:
                    return True
                await asyncio.sleep(RETRY_SECONDS)
    except TimeoutError:
        logger.warning(
            "not all leaders could be told to refuse producer %d epoch %d, whose transaction is being taken over:"
            " %s is missing, its leader cannot be reached",
            producer_id,
            producer_epoch,
            "-".join(map(str, min(missing))),
        )
        return False


async def _fence_once(
    broker: Broker,
    connect: Callable[[int], Awaitable[Connection]],
    producer_id: int,
    producer_epoch: int,
    partitions: set[TopicPartition],
) -> set[TopicPartition]:
    """Those of the partitions where nobody can continue under the pair."""
    done: set[TopicPartition] = set()
    by_leader: dict[int, list[Led]] = {}
    try:
        await broker.store.sync()
        waiting = sorted(partitions)
        for start in range(0, len(waiting), READS_AT_A_TIME):
            group = waiting[start : start + READS_AT_A_TIME]
            for key, found in zip(
                group, await asyncio.gather(*(_leadership(broker, *key) for key in group)), strict=True
            ):
                if found is None or found[0] < 0:
                    done.add(key)
                else:
                    by_leader.setdefault(found[0], []).append(Led(*key, found[1]))
    except StoreError as error:
        logger.info("cannot see who leads what: %s", error)
        return set()
    answers = await asyncio.gather(
        *(_tell(broker, connect, leader, producer_id, producer_epoch, led) for leader, led in sorted(by_leader.items()))
    )
    return done.union(*answers)


async def _leadership(broker: Broker, topic: str, index: int) -> tuple[int, int] | None:
    """Leader and leader epoch; None if the partition is no more."""
    path = znodes.state_path(topic, index)
    try:
        node = await broker.store.get(path)
        state = znodes.decode_state(path, node.data, node.stat.version)
    except NoNode:
        return None
    except znodes.MalformedNode as error:
        raise StoreError(path, str(error)) from error
    return state.leader, state.leader_epoch


async def _tell(
    broker: Broker,
    connect: Callable[[int], Awaitable[Connection]],
    leader: int,
    producer_id: int,
    producer_epoch: int,
    led: list[Led],
) -> set[TopicPartition]:
    if leader == broker.node_id:
        codes = fence_here(broker, producer_id, producer_epoch, led)
    else:
        body = json.dumps(
            {"broker_id": broker.node_id, "producer_id": producer_id, "producer_epoch": producer_epoch, "led": led}
        ).encode()
        try:
            connection = await connect(leader)
            answer = json.loads(bytes(await connection.request_bytes(FENCE_WRITER_KEY, FENCE_WRITER_FORMAT, body)))
            codes = [int(code) for code in answer["error_codes"]]
        except (ClientError, OSError, ValueError, KeyError, TypeError) as error:
            logger.info("broker %d cannot be told to refuse producer %d: %s", leader, producer_id, error)
            return set()
    return {(one.topic, one.partition) for one, code in zip(led, codes, strict=False) if code == ErrorCode.NONE}


def fence_here(broker: Broker, producer_id: int, producer_epoch: int, led: list[Led]) -> list[int]:
    """On the leader: one error code per partition."""
    codes = []
    for one in led:
        partition = broker.replicas.find(one.topic, one.partition)
        if partition is None or not partition.is_leader or partition.leader_epoch < one.leader_epoch:
            codes.append(int(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            continue
        log: Any = partition.log
        log.fence_producer(producer_id, producer_epoch)
        codes.append(int(ErrorCode.NONE))
    return codes


def answer_fence(broker: Broker, body: bytes, may_speak_for: Callable[[int], bool]) -> bytes:
    """The leader's side of the message: body in, body of the answer out."""
    try:
        request = json.loads(body)
        sender = int(request["broker_id"])
        pair = int(request["producer_id"]), int(request["producer_epoch"])
        led = [Led(str(topic), int(index), int(epoch)) for topic, index, epoch in request["led"]]
    except (ValueError, KeyError, TypeError):
        return json.dumps({"error_codes": []}).encode()
    if not may_speak_for(sender):
        codes = [int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)] * len(led)
    else:
        codes = fence_here(broker, *pair, led)
    return json.dumps({"error_codes": codes}).encode()
