"""Runs sequences on both sides, many at a time, and tells where they differ."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple
from uuid import UUID

from penstock.client.connection import Connection
from penstock.protocol import messages
from penstock.testing.lockstep import classic, groups, topics, transactions
from penstock.testing.lockstep.sides import PARTITIONS, TOPIC, Answer, Difference, MakeStep, Side

CONCURRENT_SEQUENCES = 12
SETTLING_SECONDS = 20.0


class Kind(NamedTuple):
    side: type[Side]
    make_step: MakeStep
    steps: int
    settles: bool = False
    """The state may differ for a moment after a step: what is compared is where it comes to rest."""


KINDS: dict[str, Kind] = {
    "transaction": Kind(transactions.TransactionSide, transactions.transaction_step, 14),
    "group": Kind(groups.GroupSide, groups.group_step, 14),
    "topic": Kind(topics.TopicSide, topics.topic_step, 14, settles=True),
    "classic": Kind(classic.ClassicSide, classic.classic_step, 10, settles=True),
    "transaction time-out": Kind(transactions.ShortTransactionSide, transactions.transaction_step, 6),
    "group time-out": Kind(groups.SilentGroupSide, groups.silent_step, 5, settles=True),
}
TURNS = ("transaction", "group", "topic") * 5 + ("classic", "classic", "transaction time-out", "group time-out")


class Choice(Exception):
    """They went different ways, but only because each chose for itself what it may choose; they end alike."""


async def compare(seed: int, ways: list[Callable[[], Awaitable[Connection]]], topic_ids: list[UUID], kind: str) -> int:
    """One sequence on both; the number of steps. Raises Difference, or Choice where it can be followed no further."""
    chance = random.Random(seed)
    chosen = KINDS[kind]
    sides = [
        chosen.side(await way(), f"lockstep-{seed}", topic_id, way)
        for way, topic_id in zip(ways, topic_ids, strict=True)
    ]
    told: list[str] = []

    async def differ(what: str, kafka: Answer, ours: Answer) -> Exception:
        chose = [await side.choices() for side in sides]
        if chose[0] != chose[1] and kafka[0] == ours[0]:  # what comes first is the error code
            settled = await asyncio.gather(*(side.settled() for side in sides))
            if settled[0] == settled[1]:
                return Choice(f"seed {seed} ({kind}), {what}")
            told.append(f"  at rest: {settled[0]}\n  Penstock: {settled[1]}")
        told.append(f"  {what}: {kafka}\n  Penstock: {ours}")
        return Difference(f"seed {seed} ({kind})\n" + "\n".join(told))

    try:
        for side in sides:
            await side.prepare()
        for _ in range(chosen.steps):
            name, act = chosen.make_step(chance)
            kafka, ours = await asyncio.gather(*(act(side) for side in sides))
            if kafka != ours:
                raise await differ(name, kafka, ours)
            told.append(f"  {name}: {kafka}")
            deadline = time.monotonic() + (SETTLING_SECONDS if chosen.settles else 0.0)
            while True:
                kafka, ours = await asyncio.gather(*(side.state() for side in sides))
                if kafka == ours:
                    break
                if time.monotonic() > deadline:
                    raise await differ("state", kafka, ours)
                await asyncio.sleep(0.05)
            told.append(f"  state: {kafka}")
    except (Difference, Choice):
        raise
    except Exception as error:
        raise Difference(
            f"seed {seed} ({kind})\n" + "\n".join(told) + f"\n  {type(error).__name__}: {error}"
        ) from error
    finally:
        for side in sides:
            side.close()
    return chosen.steps


async def run(
    kafka: str,
    penstock: str,
    seed: int,
    sequences: int,
    kinds: tuple[str, ...] = TURNS,
    tell: Callable[[str], None] = lambda text: None,
) -> list[str]:
    """The differences that were found, one text each; `tell` gets them at once, and what was a matter of choice."""
    ways = [_way_to(bootstrap) for bootstrap in (kafka, penstock)]
    shared: list[Connection] = [await way() for way in ways]
    found: list[str] = []
    try:
        topic_ids = [await _prepare(connection) for connection in shared]
        seeds = iter(range(seed, seed + sequences))

        async def work() -> None:
            for number in seeds:
                try:
                    await compare(number, ways, topic_ids, kinds[number % len(kinds)])
                except Difference as difference:
                    found.append(str(difference))
                    tell(found[-1])
                except Choice as choice:
                    tell(f"a matter of choice: {choice}")

        await asyncio.gather(*(work() for _ in range(CONCURRENT_SEQUENCES)))
    finally:
        for connection in shared:
            connection.close()
    return found


def _way_to(bootstrap: str) -> Callable[[], Awaitable[Connection]]:
    host, _, port = bootstrap.split(",")[0].rpartition(":")
    return lambda: Connection.open(host, int(port), "lockstep")


async def _prepare(connection: Connection) -> UUID:
    """A topic, and both coordinators ready to answer."""
    create = messages.api("create_topics")
    topic = create.CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1)
    await connection.request("create_topics", create.Request(topics=[topic], timeout_ms=30_000), 7)
    find = messages.api("find_coordinator")
    for kind in (0, 1):
        for _ in range(600):
            request = find.Request(key_type=kind, coordinator_keys=["x"])
            if not (await connection.request("find_coordinator", request, 4)).coordinators[0].error_code:
                break
            await asyncio.sleep(0.05)
    metadata = messages.api("metadata")
    named = metadata.Request(topics=[metadata.MetadataRequestTopic(name=TOPIC)])
    for _ in range(600):
        described = (await connection.request("metadata", named, 12)).topics[0]
        if not described.error_code and len(described.partitions) == PARTITIONS:
            break
        await asyncio.sleep(0.05)
    topic_id: UUID = described.topic_id
    return topic_id
