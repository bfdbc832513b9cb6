"""Sequences of consumer groups: static members, a classic member among them, commits, deletions, silence."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

from penstock.coordinator.group.consumer_protocol import Subscription, encode_subscription
from penstock.protocol import messages
from penstock.protocol.errors import ErrorCode
from penstock.testing.lockstep.sides import TOPIC, Answer, Side, Step

SESSION_MS = 2_000
SETTLING_SECONDS = 60.0
GROUP_RESOURCE = 32


class GroupSide(Side):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.members: dict[str, int] = {}
        self.owned: dict[str, list[int]] = {}
        self.classic: tuple[str, int] = ("", -1)

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
                count_partitions(member.assignment) if settled else -1,
                count_partitions(member.target_assignment),
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

    state = group

    async def choices(self) -> Any:
        """Whose shall be which partition. Which one has to give back, and who waits for it, follows from that."""
        request = messages.api("consumer_group_describe").Request(group_ids=[self.name])
        found = (await self.ask("consumer_group_describe", request, 1, lambda a: int(a.groups[0].error_code))).groups[0]
        return {
            member.member_id: sorted(p for t in member.target_assignment.topic_partitions for p in t.partitions)
            for member in found.members
            if member.member_type != 0
        }

    async def settled(self) -> Answer:
        """Only who is there and what he has: how many epochs it took is a matter of timing."""
        await self._settle()
        found = await self.group()
        members = [(name, instance, held, wanted) for name, instance, _, held, wanted in found[4]]
        return found[0], found[1], members, found[5]

    async def _settle(self) -> Answer:
        deadline = time.monotonic() + SETTLING_SECONDS
        while time.monotonic() < deadline:
            for member in [name for name, epoch in self.members.items() if epoch > 0]:
                await self.heartbeat(member, None, f"i{member}" if member == "m3" else None, False)
            if self.classic[0]:
                await self.join_classic(None)
            found = await self.group()
            if found[1] in ("Stable", "Empty", "Dead", ""):
                return ("settled", sorted(len(owned) for owned in self.owned.values()))
            await asyncio.sleep(0.05)
        return ("does not settle",)


class SilentGroupSide(GroupSide):
    """A group whose members are taken for dead soon."""

    async def prepare(self) -> None:
        api = messages.api("incremental_alter_configs")
        setting = api.AlterableConfig(name="consumer.session.timeout.ms", config_operation=0, value=str(SESSION_MS))
        resource = api.AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=self.name, configs=[setting])
        answer = await self.connection.request("incremental_alter_configs", api.Request(resources=[resource]), 1)
        assert not answer.responses[0].error_code, answer

    async def silence(self, silent: str) -> Answer:
        """All but one go on until that one is gone; what the others were told is not compared, only that it is."""
        if not self.members.get(silent):
            return ("was not there",)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            others = [member for member, epoch in self.members.items() if epoch > 0 and member != silent]
            for member in others:
                await self.heartbeat(member, None, f"i{member}" if member == "m3" else None, False)
            if silent not in await self._present():
                self.members[silent], self.owned[silent] = 0, []
                return ("gone",)
            await asyncio.sleep(0.1)
        return ("still there",)

    async def _present(self) -> list[str]:
        request = messages.api("consumer_group_describe").Request(group_ids=[self.name])
        answer = await self.ask("consumer_group_describe", request, 1, lambda a: int(a.groups[0].error_code))
        return [member.member_id for member in answer.groups[0].members]

    async def gather(self, *joining: str) -> Answer:
        """These join, and all beat until everybody has what he should have."""
        for member in joining:
            if not self.members.get(member):
                await self.heartbeat(member, 0, f"i{member}" if member == "m3" else None, False)
        return await self._settle()

    state = GroupSide.settled


def count_partitions(assignment: Any) -> int:
    return sum(len(topic.partitions) for topic in assignment.topic_partitions)


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


def silent_step(chance: random.Random) -> Step:
    kind = chance.choice(["gather", "gather", "silence", "silence", "leave"])
    member = chance.choice(["m1", "m2", "m3"])
    if kind == "gather":
        joining = chance.sample(["m1", "m2", "m3"], chance.randint(1, 3))
        return f"gather {joining}", lambda side: side.gather(*joining)
    if kind == "silence":
        return f"silence {member}", lambda side: side.silence(member)
    instance = f"i{member}" if member == "m3" else None
    return f"leave {member}", lambda side: _left(side, member, instance)


async def _left(side: GroupSide, member: str, instance: str | None) -> Answer:
    code, *_ = await side.heartbeat(member, -1, instance, False)
    side.owned.pop(member, None)
    return (code,)
