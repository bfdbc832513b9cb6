"""Members of groups: classic ones, and those of KIP-848. Each seat is taken by one life after the other, which leave,
or fall silent."""

from __future__ import annotations

import asyncio
import uuid
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from penstock.client.errors import ClientError
from penstock.coordinator.group.consumer_protocol import (
    Subscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from penstock.coordinator.group.service import TOPIC as GROUP_TOPIC
from penstock.coordinator.java_hash import partition_of
from penstock.protocol import messages
from penstock.protocol.errors import ErrorCode
from penstock.testing.simulation.coordinating import INTERNAL_PARTITIONS, REBALANCE_TIMEOUT_MS, SESSION_TIMEOUT_MS
from penstock.testing.simulation.group_rules import GroupRules
from penstock.testing.simulation.life import Life

if TYPE_CHECKING:
    from penstock.testing.simulation.disk import TopicPartition
    from penstock.testing.simulation.node import SimCluster, SimNode

ANSWER_SECONDS = 2.5
JOIN_SECONDS = 9.0
FENCED = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.FENCED_INSTANCE_ID,
}


class CoordinatorClient:
    """Asks the coordinator that some broker's metadata names."""

    def __init__(self, name: str, cluster: SimCluster, coordinated: TopicPartition) -> None:
        self.name = name
        self.life = Life(name)
        self.cluster = cluster
        self.world = cluster.world
        self.coordinated = coordinated

    def coordinator(self, where: TopicPartition | None = None) -> SimNode | None:
        up = [node for node in self.cluster.nodes.values() if node.up]
        if not up:
            return None
        told = self.world.random.choice(up).manager.image.partition(*(where or self.coordinated))
        return None if told is None else self.cluster.nodes.get(told.leader)

    async def ask(self, node: SimNode | None, api: str, version: int, request: Any, seconds: float) -> Any:
        """The answer, or None."""
        if node is None or node.broker is None:
            return None
        broker = node.broker
        try:
            return await self.world.call(
                self.life, node.life, lambda: broker.handle(api, version, request), timeout_s=seconds
            )
        except ClientError:
            return None

    async def ask_coordinator(self, api: str, version: int, request: Any, seconds: float = ANSWER_SECONDS) -> Any:
        return await self.ask(self.coordinator(), api, version, request, seconds)


class Seat(CoordinatorClient, ABC):
    """A place in a group. `topic` is what the group reads."""

    def __init__(self, name: str, group: str, topic: str, cluster: SimCluster, rules: GroupRules) -> None:
        super().__init__(name, cluster, (GROUP_TOPIC, partition_of(group, INTERNAL_PARTITIONS)))
        self.group = group
        self.topic = topic
        self.rules = rules
        self.active = True
        self.stays = False
        self.holder = rules.enter(name, group)
        self.member_id = ""
        self.epoch = -1
        self.until = 0.0

    async def run(self) -> None:
        dice = self.world.random
        while self.active:
            self.until = self.world.now + dice.uniform(1.0, 7.0)
            self.member_id, self.epoch = "", -1
            while self.wanted:
                await self.live()
            if self.stays:
                return
            leaves = dice.random() < 0.6
            self.world.log(f"{self.name}: {'leaves' if leaves else 'falls silent'} ({self.member_id})")
            self.world.spawn(self._echo(dict(self.holder.holds), self.member_id, self.epoch))
            self.rules.gone(self.holder)
            if leaves:
                await self.leave()
            await asyncio.sleep(dice.uniform(0.1, 3.0))
            self.holder = self.rules.enter(self.name, self.group)

    async def _echo(self, holds: dict[int, int], member_id: str, epoch: int) -> None:
        """What a process that was thought dead still sends: a commit of what it once held."""
        await asyncio.sleep(self.world.random.uniform(0.5, 8.0))
        if holds:
            index, tenure = self.world.random.choice(sorted(holds.items()))
            await self._commit(index, tenure, member_id, epoch)

    @property
    def wanted(self) -> bool:
        return self.active and (self.stays or self.world.now < self.until)

    @abstractmethod
    async def live(self) -> None: ...

    @abstractmethod
    async def leave(self) -> None: ...

    def release(self) -> None:
        self.holder.holds = {}

    async def pause(self) -> None:
        await asyncio.sleep(self.world.random.uniform(0.1, 0.6))

    async def renewing(self, api: str, version: int, request: Any, seconds: float = ANSWER_SECONDS) -> Any:
        """An answer of the coordinator of record renews the lease."""
        node, sent_at = self.coordinator(), self.world.now
        answer = await self.ask(node, api, version, request, seconds)
        answered = answer is not None and answer.error_code == 0
        if answered and node is not None and self.cluster.is_leader_of_record(node, self.coordinated):
            self.holder.renew(sent_at)
        return answer

    async def commit(self) -> bool:
        """False: fenced."""
        if not self.holder.holds or self.world.random.random() < 0.4:
            return True
        index, tenure = self.world.random.choice(sorted(self.holder.holds.items()))
        return await self._commit(index, tenure, self.member_id, self.epoch) not in FENCED

    async def _commit(self, index: int, tenure: int, member_id: str, epoch: int) -> ErrorCode | None:
        key, value = (self.group, index), self.cluster.next_number()
        self.rules.sent(key, tenure, value)
        api = messages.api("offset_commit")
        request = api.Request(
            group_id=self.group,
            generation_id_or_member_epoch=epoch,
            member_id=member_id,
            topics=[
                api.OffsetCommitRequestTopic(
                    name=self.topic,
                    partitions=[
                        api.OffsetCommitRequestPartition(
                            partition_index=index,
                            committed_offset=value,
                            committed_leader_epoch=-1,
                            committed_metadata="",
                        )
                    ],
                )
            ],
        )
        answer = await self.ask_coordinator("offset_commit", 9, request)
        if answer is None:
            return None
        error = ErrorCode(answer.topics[0].partitions[0].error_code)
        if error is ErrorCode.NONE:
            self.rules.acknowledged(key, tenure, value)
        elif error in FENCED or error is ErrorCode.REBALANCE_IN_PROGRESS:
            self.rules.refused(key, tenure, value)
        return error


class ClassicSeat(Seat):
    """JoinGroup, SyncGroup, heartbeats; eager: it gives everything back before it joins again."""

    async def live(self) -> None:
        self.release()
        joined = await self._join()
        if joined is None:
            await self.pause()
            return
        shares = await self._sync(joined)
        if shares is None:
            await self.pause()
            return
        held = False
        while self.wanted:
            error = await self._beat()
            if error is ErrorCode.NONE and not held and not self.rules.is_out(self.holder):
                self.rules.given(self.holder, shares)
                held = True
            if error in FENCED or error is ErrorCode.REBALANCE_IN_PROGRESS:
                self.release()
                if error is ErrorCode.UNKNOWN_MEMBER_ID:
                    self.member_id = ""
                return
            if held and self.rules.is_out(self.holder):
                return
            if not await self.commit():
                self.release()
                return
            await self.pause()

    async def _join(self) -> Any:
        api = messages.api("join_group")
        request = api.Request(
            group_id=self.group,
            member_id=self.member_id,
            protocol_type="consumer",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            protocols=[
                api.JoinGroupRequestProtocol(
                    name="range", metadata=encode_subscription(Subscription([self.topic], version=1))
                )
            ],
        )
        answer = await self.ask_coordinator("join_group", 9, request, JOIN_SECONDS)
        if answer is None:
            return None
        error = ErrorCode(answer.error_code)
        if error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            return await self._join()
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        if error is not ErrorCode.NONE:
            return None
        self.member_id, self.epoch = answer.member_id, answer.generation_id
        return answer

    async def _sync(self, joined: Any) -> list[int] | None:
        api = messages.api("sync_group")
        shares: list[Any] = []
        if joined.leader == self.member_id and not joined.skip_assignment:
            ids = sorted(member.member_id for member in joined.members)
            count = self.cluster.partition_count(self.topic)
            shares = [
                api.SyncGroupRequestAssignment(
                    member_id=member_id,
                    assignment=encode_assignment({self.topic: list(range(place, count, len(ids)))}),
                )
                for place, member_id in enumerate(ids)
            ]
        request = api.Request(
            group_id=self.group,
            generation_id=self.epoch,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name=joined.protocol_name,
            assignments=shares,
        )
        answer = await self.ask_coordinator("sync_group", 5, request, JOIN_SECONDS)
        if answer is None or answer.error_code:
            if answer is not None and ErrorCode(answer.error_code) is ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            return None
        return decode_assignment(answer.assignment).get(self.topic, []) if answer.assignment else []

    async def _beat(self) -> ErrorCode | None:
        request = messages.api("heartbeat").Request(
            group_id=self.group, generation_id=self.epoch, member_id=self.member_id
        )
        answer = await self.renewing("heartbeat", 4, request)
        return None if answer is None else ErrorCode(answer.error_code)

    async def leave(self) -> None:
        api = messages.api("leave_group")
        request = api.Request(group_id=self.group, members=[api.MemberIdentity(member_id=self.member_id)])
        await self.ask_coordinator("leave_group", 5, request)


class ConsumerSeat(Seat):
    """ConsumerGroupHeartbeat (KIP-848): gives back what it is told to, at once."""

    async def live(self) -> None:
        if not self.member_id:
            self.member_id = str(uuid.UUID(int=self.world.random.getrandbits(128), version=4))
        self.epoch, full = 0, True
        self.release()
        while self.wanted:
            answer = await self.renewing("consumer_group_heartbeat", 1, self._heartbeat(full))
            error = None if answer is None else ErrorCode(answer.error_code)
            full = error is not ErrorCode.NONE
            if error in FENCED:
                self.release()
                return
            if answer is not None and error is ErrorCode.NONE:
                self._told(answer)
            if self.holder.holds and self.rules.is_out(self.holder):
                self.release()
                return
            await self.commit()
            await self.pause()

    def _told(self, answer: Any) -> None:
        self.epoch = answer.member_epoch
        if answer.assignment is None:
            return
        share = [index for topic in answer.assignment.topic_partitions for index in topic.partitions]
        if not self.rules.is_out(self.holder):
            self.rules.given(self.holder, share)

    def _heartbeat(self, full: bool) -> Any:
        api = messages.api("consumer_group_heartbeat")
        joining = self.epoch == 0
        topic_id = self.cluster.topic_id(self.topic)
        owned = sorted(self.holder.holds)
        share = [api.request_struct("TopicPartitions")(topic_id=topic_id, partitions=owned)] if owned else []
        return api.Request(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if full or joining else -1,
            subscribed_topic_names=[self.topic] if full or joining else None,
            topic_partitions=[] if joining else share,
        )

    async def leave(self) -> None:
        request = messages.api("consumer_group_heartbeat").Request(
            group_id=self.group, member_id=self.member_id, member_epoch=-1, topic_partitions=[]
        )
        await self.ask_coordinator("consumer_group_heartbeat", 1, request)


class OffsetReader(CoordinatorClient):
    """Asks for a group's offsets, and has them judged where they are looked up: at the coordinator of record."""

    def __init__(self, group: str, topic: str, cluster: SimCluster, rules: GroupRules) -> None:
        super().__init__(f"offsets of {group}", cluster, (GROUP_TOPIC, partition_of(group, INTERNAL_PARTITIONS)))
        self.group = group
        self.topic = topic
        self.rules = rules
        self.looks = 0
        self.judged = True

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self.world.random.uniform(0.2, 0.8))
            await self.look()

    async def look(self) -> dict[int, int] | None:
        node = self.coordinator()
        if node is None or node.broker is None:
            return None
        broker, life = node.broker, node.life
        api = messages.api("offset_fetch")
        request = api.Request(groups=[api.OffsetFetchRequestGroup(group_id=self.group, member_epoch=-1, topics=None)])

        async def read() -> dict[int, int] | None:
            indexes = range(self.cluster.partition_count(self.topic))
            before = {index: self.rules.possible((self.group, index)) for index in indexes}
            current = self.cluster.is_leader_of_record(node, self.coordinated)
            found = (await broker.handle("offset_fetch", 8, request)).groups[0]
            if found.error_code or not current or not life.alive:
                return None
            if not self.cluster.is_leader_of_record(node, self.coordinated):
                return None
            offsets = {p.partition_index: p.committed_offset for t in found.topics for p in t.partitions}
            for index in indexes if self.judged else ():
                self.rules.fetched((self.group, index), before[index], offsets.get(index, -1))
            self.looks += 1
            return offsets

        try:
            return await self.world.call(self.life, life, read, ANSWER_SECONDS)
        except ClientError:
            return None
