"""Lockstep with Apache Kafka: the same random requests of groups and transactions go to both; both must say the same.

Each sequence has ids of its own, so that many run side by side. What a side made up (producer ids, member ids, epochs)
is used on that side only and compared by its place: the n-th id seen here must be the n-th id seen there, and a larger
epoch here a larger one there. After each step the described state is compared, too.

    python -m penstock.testing.lockstep --sequences 2000 --seed 1

A difference prints the seed of its sequence and the steps that led to it; `--seed N --sequences 1` repeats it.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

from penstock.client.connection import Connection
from penstock.coordinator.group.consumer_protocol import Subscription, encode_subscription
from penstock.protocol import messages
from penstock.protocol.errors import ErrorCode

TOPIC = "lockstep"
PARTITIONS = 12  # which every number of members divides: who gets one more is the assignor's own affair
STEPS = 14
CONCURRENT_SEQUENCES = 8
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "transaction.partition.verification.enable": "true",
}
_AGAIN = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)
Answer = tuple[Any, ...]


class Difference(Exception):
    """The two sides do not say the same."""


class Ids:
    """Ids of one side by the order in which they were first seen."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}

    def of(self, value: Any) -> int:
        return self._numbers.setdefault(value, len(self._numbers)) if value not in (-1, "", None) else -1


class Epochs:
    """Group and member epochs of one side: compared by their order, for Kafka begins at another one."""

    def __init__(self) -> None:
        self._seen: list[int] = []

    def of(self, epoch: int) -> int:
        if epoch <= 0:
            return epoch
        if epoch not in self._seen:
            self._seen.append(epoch)
            self._seen.sort()
        return self._seen.index(epoch) + 1


class Side:
    """One sequence on one of the two."""

    def __init__(self, connection: Connection, name: str, topic_id: UUID) -> None:
        self.connection = connection
        self.name = name
        self.topic_id = topic_id
        self.ids = Ids()
        self.epochs = Epochs()
        self.pairs: dict[str, tuple[int, int]] = {"a": (-1, -1), "b": (-1, -1), "stranger": (999_999, 0)}
        self.members: dict[str, int] = {}
        self.owned: dict[str, list[int]] = {}
        self.classic: tuple[str, int] = ("", -1)

    async def ask(self, api: str, request: Any, version: int, code: Callable[[Any], int]) -> Any:
        """The answer, once it is none of those that only say "come again"."""
        deadline = time.monotonic() + 60
        while True:
            answer = await self.connection.request(api, request, version)
            if ErrorCode(code(answer)) not in _AGAIN or time.monotonic() > deadline:
                return answer
            await asyncio.sleep(0.01)

    # Transactions ----------------------------------------------------------------------------------------------

    async def initialize(self, who: str, expect: bool, version: int) -> Answer:
        pair = self.pairs[who] if expect else (-1, -1)
        request = messages.api("init_producer_id").Request(
            transactional_id=self.name, transaction_timeout_ms=60_000, producer_id=pair[0], producer_epoch=pair[1]
        )
        answer = await self.ask("init_producer_id", request, version, lambda a: int(a.error_code))
        if answer.error_code == 0:
            self.pairs[who] = (answer.producer_id, answer.producer_epoch)
        return answer.error_code, self.ids.of(answer.producer_id), answer.producer_epoch

    async def add(self, who: str, partition: int) -> Answer:
        api = messages.api("add_partitions_to_txn")
        producer_id, epoch = self.pairs[who]
        request = api.Request(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[api.AddPartitionsToTxnTopic(name=TOPIC, partitions=[partition])],
        )

        def code(answer: Any) -> int:
            return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

        return (code(await self.ask("add_partitions_to_txn", request, 3, code)),)

    async def end(self, who: str, commit: bool, version: int) -> Answer:
        producer_id, epoch = self.pairs[who]
        request = messages.api("end_txn").Request(
            transactional_id=self.name, producer_id=producer_id, producer_epoch=epoch, committed=commit
        )
        answer = await self.ask("end_txn", request, version, lambda a: int(a.error_code))
        if answer.error_code == 0 and version >= 5:
            self.pairs[who] = (answer.producer_id, answer.producer_epoch)
            return 0, self.ids.of(answer.producer_id), answer.producer_epoch
        return (answer.error_code,)

    async def transaction(self) -> Answer:
        """Its state, once no markers are on their way."""
        request = messages.api("describe_transactions").Request(transactional_ids=[self.name])
        while True:
            answer = await self.ask(
                "describe_transactions", request, 0, lambda a: int(a.transaction_states[0].error_code)
            )
            state = answer.transaction_states[0]
            if not state.transaction_state.startswith("Prepare"):
                break
            await asyncio.sleep(0.005)
        partitions = sorted(index for topic in state.topics for index in topic.partitions)
        pair = self.ids.of(state.producer_id), state.producer_epoch
        return state.error_code, state.transaction_state, *pair, state.transaction_timeout_ms, partitions

    # Groups ----------------------------------------------------------------------------------------------------

    async def heartbeat(self, member: str, epoch: int | None, instance: str | None, stale: bool) -> Answer:
        """`epoch` None: the one that the member holds; `stale`: one below it, by one that does not say what it owns.

        (If it does, and the answer to its last heartbeat may have been lost, both accept it; but Kafka forgets the
        epoch before after one more heartbeat in which the member waits for partitions of others, and we do not.)
        """
        api = messages.api("consumer_group_heartbeat")
        held = self.members.get(member, 0) if epoch is None else epoch
        held -= 1 if stale and held > 0 else 0
        joining = held == 0
        owned = [] if joining else self.owned.get(member, [])
        share = [api.request_struct("TopicPartitions")(topic_id=self.topic_id, partitions=owned)] if owned else []
        request = api.Request(
            group_id=self.name,
            member_id=member,
            member_epoch=held,
            instance_id=instance,
            rebalance_timeout_ms=300_000 if joining else -1,
            subscribed_topic_names=[TOPIC] if joining else None,
            topic_partitions=share if held >= 0 and not stale else None,
        )
        answer = await self.ask("consumer_group_heartbeat", request, 1, lambda a: int(a.error_code))
        if answer.error_code == 0:
            self.members[member] = max(answer.member_epoch, 0)
            if answer.assignment is not None:
                self.owned[member] = [p for t in answer.assignment.topic_partitions for p in t.partitions]
        elif ErrorCode(answer.error_code) in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self.members[member], self.owned[member] = 0, []
        return answer.error_code, self.epochs.of(answer.member_epoch), answer.assignment is not None

    async def commit(self, member: str, offset: int, version: int) -> Answer:
        api = messages.api("offset_commit")
        partition = api.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
        )
        topic = api.OffsetCommitRequestTopic(name=TOPIC, topic_id=self.topic_id, partitions=[partition])
        known = self.members.get(member, 0)
        request = api.Request(
            group_id=self.name,
            generation_id_or_member_epoch=known if known > 0 else -1,
            member_id=member if known > 0 else "",
            topics=[topic],
        )

        def code(answer: Any) -> int:
            return int(answer.topics[0].partitions[0].error_code)

        return (code(await self.ask("offset_commit", request, version, code)),)

    async def delete_offset(self) -> Answer:
        api = messages.api("offset_delete")
        topic = api.OffsetDeleteRequestTopic(
            name=TOPIC, partitions=[api.OffsetDeleteRequestPartition(partition_index=0)]
        )
        request = api.Request(group_id=self.name, topics=[topic])
        answer = await self.ask("offset_delete", request, 0, lambda a: int(a.error_code))
        return answer.error_code, [p.error_code for t in answer.topics for p in t.partitions]

    async def delete_group(self) -> Answer:
        request = messages.api("delete_groups").Request(groups_names=[self.name])
        answer = await self.ask("delete_groups", request, 2, lambda a: int(a.results[0].error_code))
        return (answer.results[0].error_code,)

    async def join_classic(self, instance: str | None) -> Answer:
        """Only ever one classic member: with more, the answer would wait for the others."""
        api = messages.api("join_group")
        metadata = encode_subscription(Subscription([TOPIC], version=1))
        request = api.Request(
            group_id=self.name,
            member_id=self.classic[0],
            group_instance_id=instance,
            protocol_type="consumer",
            session_timeout_ms=45_000,
            rebalance_timeout_ms=300_000,
            protocols=[api.JoinGroupRequestProtocol(name="range", metadata=metadata)],
        )
        answer = await self.ask("join_group", request, 9, lambda a: int(a.error_code))
        if ErrorCode(answer.error_code) is ErrorCode.UNKNOWN_MEMBER_ID:
            self.classic = ("", -1)
        elif answer.member_id:
            self.classic = (answer.member_id, answer.generation_id)
        return answer.error_code, self.epochs.of(answer.generation_id), answer.protocol_name

    async def leave_classic(self) -> Answer:
        api = messages.api("leave_group")
        request = api.Request(group_id=self.name, members=[api.MemberIdentity(member_id=self.classic[0])])
        answer = await self.ask("leave_group", request, 5, lambda a: int(a.error_code))
        self.classic = ("", -1)
        return answer.error_code, [member.error_code for member in answer.members]

    async def group(self) -> Answer:
        """What administrators see of it: as a consumer group, as a classic one, and its offset.

        Which partition goes to whom is the assignor's own affair, and so is how many are free at once; what members
        hold is compared when the group has settled.
        """
        describe = messages.api("consumer_group_describe").Request(group_ids=[self.name])
        found = (await self.ask("consumer_group_describe", describe, 1, lambda a: int(a.groups[0].error_code))).groups[
            0
        ]
        if found.group_state == "Empty":
            # With an id that nobody knows, a classic member is refused by both; Kafka forgets the group all the same.
            self.classic = ("", -1)
        settled = found.group_state == "Stable"
        members = sorted(
            (
                "classic" if member.member_type == 0 else member.member_id,
                member.instance_id,
                self.epochs.of(member.member_epoch),
                _count(member.assignment) if settled else -1,
                _count(member.target_assignment),
            )
            for member in found.members
        )
        fetch = messages.api("offset_fetch")
        request = fetch.Request(groups=[fetch.OffsetFetchRequestGroup(group_id=self.name, topics=None)])
        fetched = (await self.ask("offset_fetch", request, 8, lambda a: int(a.groups[0].error_code))).groups[0]
        offsets = [(p.partition_index, p.committed_offset) for t in fetched.topics for p in t.partitions]
        described = (await self.ask(
            "describe_groups", messages.api("describe_groups").Request(groups=[self.name]), 5,
            lambda a: int(a.groups[0].error_code),
        )).groups[0]  # fmt: skip
        epochs = self.epochs.of(found.group_epoch), self.epochs.of(found.assignment_epoch)
        classic = described.group_state, described.protocol_type, len(described.members)
        return found.error_code, found.group_state, *epochs, members, offsets, classic


def _count(assignment: Any) -> int:
    return sum(len(topic.partitions) for topic in assignment.topic_partitions)


# Sequences -----------------------------------------------------------------------------------------------------------

Step = tuple[str, Callable[[Side], Awaitable[Answer]]]


def transaction_step(chance: random.Random) -> Step:
    who = chance.choice(["a", "a", "a", "b", "stranger"])
    kind = chance.choice(["init", "init", "add", "add", "add", "end", "end", "end"])
    if kind == "init":
        expect, version = chance.random() < 0.4, chance.choice([2, 3, 4, 5])
        return f"init {who} expect={expect} v{version}", lambda side: side.initialize(who, expect, version)
    if kind == "add":
        partition = chance.randrange(PARTITIONS + 1)
        return f"add {who} {partition}", lambda side: side.add(who, partition)
    commit, version = chance.random() < 0.6, chance.choice([1, 4, 5, 5, 5])
    return f"end {who} commit={commit} v{version}", lambda side: side.end(who, commit, version)


def group_step(chance: random.Random) -> Step:
    member = chance.choice(["m1", "m2", "m3"])
    instance = f"i{member}" if member == "m3" else None
    kind = chance.choice(
        ["beat"] * 6 + ["join", "leave", "away", "commit", "commit", "offset", "delete", "classic", "goodbye"]
    )
    if kind == "beat":
        stale = chance.random() < 0.15
        return f"beat {member} stale={stale}", lambda side: side.heartbeat(member, None, instance, stale)
    if kind in ("join", "leave", "away"):
        epoch = {"join": 0, "leave": -1, "away": -2 if instance else -1}[kind]
        return f"{kind} {member}", lambda side: side.heartbeat(member, epoch, instance, False)
    if kind == "commit":
        offset, version = chance.randrange(100), chance.choice([8, 9, 10])
        return f"commit {member} {offset} v{version}", lambda side: side.commit(member, offset, version)
    if kind == "offset":
        return "delete offset", lambda side: side.delete_offset()
    if kind == "delete":
        return "delete group", lambda side: side.delete_group()
    if kind == "classic":
        return "join classic", lambda side: side.join_classic(None)
    return "leave classic", lambda side: side.leave_classic()


KINDS: dict[str, tuple[Callable[[random.Random], Step], Callable[[Side], Awaitable[Answer]]]] = {
    "transaction": (transaction_step, lambda side: side.transaction()),
    "group": (group_step, lambda side: side.group()),
}


async def compare(seed: int, connections: tuple[Connection, Connection], topic_ids: tuple[UUID, UUID]) -> int:
    """One sequence on both; the number of steps. Raises Difference."""
    chance = random.Random(seed)
    kind = ("transaction", "group")[seed % 2]
    make_step, describe = KINDS[kind]
    sides = [Side(c, f"lockstep-{seed}", t) for c, t in zip(connections, topic_ids, strict=True)]
    told: list[str] = []
    for _ in range(STEPS):
        name, act = make_step(chance)
        for what, ask in ((name, act), ("state", describe)):
            kafka, ours = await asyncio.gather(*(ask(side) for side in sides))
            told.append(f"  {what}: {kafka}")
            if kafka != ours:
                told.append(f"  Penstock: {ours}")
                raise Difference(f"seed {seed} ({kind})\n" + "\n".join(told))
    return STEPS


async def run(kafka: str, penstock: str, seed: int, sequences: int) -> list[str]:
    """The differences that were found, one text each."""
    connections: list[Connection] = []
    for bootstrap in (kafka, penstock):
        host, _, port = bootstrap.split(",")[0].rpartition(":")
        connections.append(await Connection.open(host, int(port), "lockstep"))
    found: list[str] = []
    try:
        first, second = [await _prepare(connection) for connection in connections]
        seeds = iter(range(seed, seed + sequences))

        async def work() -> None:
            for number in seeds:
                try:
                    await compare(number, (connections[0], connections[1]), (first, second))
                except Difference as difference:
                    found.append(str(difference))

        await asyncio.gather(*(work() for _ in range(CONCURRENT_SEQUENCES)))
    finally:
        for connection in connections:
            connection.close()
    return found


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


def main() -> int:
    from penstock.broker.embedded import EmbeddedBroker
    from penstock.testing import peers

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sequences", type=int, default=2_000)
    arguments = parser.parse_args()
    began = time.monotonic()
    with peers.apache_kafka(settings=SETTINGS) as kafka, EmbeddedBroker(settings=SETTINGS) as broker:
        found = asyncio.run(run(kafka.bootstrap, broker.bootstrap, arguments.seed, arguments.sequences))
    print("\n".join(found))
    seconds = time.monotonic() - began
    print(f"{arguments.sequences} sequences from seed {arguments.seed}: {len(found)} differ, {seconds:.0f} s")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
