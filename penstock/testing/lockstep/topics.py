"""Sequences of topic administration: made, grown, configured, written to, cut, deleted, made anew; well and badly."""

from __future__ import annotations

import random
import time
from typing import Any
from uuid import UUID

from penstock.protocol import messages
from penstock.protocol.batch import build_batch
from penstock.protocol.records import new_record
from penstock.testing.lockstep.sides import Answer, Side, Step

TOPIC_RESOURCE = 2
SHOWN = ("cleanup.policy", "retention.ms", "segment.bytes", "min.insync.replicas", "max.message.bytes")
VALUES = {
    "cleanup.policy": ["delete", "compact", "compact,delete", "nonsense"],
    "retention.ms": ["3600000", "-1", "-2", "soon"],
    "segment.bytes": ["1048576", "13", "99999999999"],
    "min.insync.replicas": ["1", "2", "0"],
    "max.message.bytes": ["1000000", "-1"],
    "no.such.setting": ["1"],
}
NAMES = ("a", "b", "bad name!", ".", "")


class TopicSide(Side):
    def full(self, name: str) -> str:
        return f"{self.name}-{name}" if name in ("a", "b") else name

    async def create(
        self, name: str, partitions: int, factor: int, configs: dict[str, str], only_check: bool, version: int
    ) -> Answer:
        api = messages.api("create_topics")
        topic = api.CreatableTopic(
            name=self.full(name),
            num_partitions=partitions,
            replication_factor=factor,
            configs=[api.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        request = api.Request(topics=[topic], timeout_ms=30_000, validate_only=only_check)
        answer = (await self.connection.request("create_topics", request, version)).topics[0]
        if version < 5 or answer.error_code:
            return (answer.error_code,)
        return 0, answer.num_partitions, answer.replication_factor, (answer.topic_id.int != 0) if version >= 7 else None

    async def assign(self, name: str, replicas: list[list[int]]) -> Answer:
        """A topic whose replicas are named."""
        api = messages.api("create_topics")
        assignments = [
            api.CreatableReplicaAssignment(partition_index=index, broker_ids=await self._brokers(wanted))
            for index, wanted in enumerate(replicas)
        ]
        topic = api.CreatableTopic(
            name=self.full(name), num_partitions=-1, replication_factor=-1, assignments=assignments
        )
        request = api.Request(topics=[topic], timeout_ms=30_000)
        answer = (await self.connection.request("create_topics", request, 7)).topics[0]
        return answer.error_code, answer.num_partitions if not answer.error_code else -1

    async def _brokers(self, wanted: list[int]) -> list[int]:
        """0 stands for the one that there is, whatever its id; others are unknown."""
        described = await self.connection.request("metadata", messages.api("metadata").Request(topics=[]), 12)
        return [described.brokers[0].node_id if one == 0 else 7_000 + one for one in wanted]

    async def delete(self, name: str, by_id: bool) -> Answer:
        api = messages.api("delete_topics")
        if by_id:
            topic_id = (await self._described(name)).topic_id
            request = api.Request(
                topics=[api.DeleteTopicState(name=None, topic_id=topic_id or UUID(int=9))], timeout_ms=30_000
            )
            answer = await self.connection.request("delete_topics", request, 6)
        else:
            request = api.Request(topic_names=[self.full(name)], timeout_ms=30_000)
            answer = await self.connection.request("delete_topics", request, 5)
        return (answer.responses[0].error_code,)

    async def grow(self, name: str, count: int, replicas: list[list[int]] | None, only_check: bool) -> Answer:
        api = messages.api("create_partitions")
        assignments = None
        if replicas is not None:
            assignments = [
                api.CreatePartitionsAssignment(broker_ids=await self._brokers(wanted)) for wanted in replicas
            ]
        topic = api.CreatePartitionsTopic(name=self.full(name), count=count, assignments=assignments)
        request = api.Request(topics=[topic], timeout_ms=30_000, validate_only=only_check)
        answer = await self.connection.request("create_partitions", request, 3)
        return (answer.results[0].error_code,)

    async def configure(self, name: str, changes: list[tuple[str, int, str | None]], only_check: bool) -> Answer:
        api = messages.api("incremental_alter_configs")
        configs = [api.AlterableConfig(name=key, config_operation=how, value=value) for key, how, value in changes]
        resource = api.AlterConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=self.full(name), configs=configs
        )
        request = api.Request(resources=[resource], validate_only=only_check)
        answer = await self.connection.request("incremental_alter_configs", request, 1)
        return (answer.responses[0].error_code,)

    async def produce(self, name: str, partition: int, count: int) -> Answer:
        api = messages.api("produce")
        now_ms = int(time.time() * 1000)  # what is older than retention.ms goes when each side comes to look
        batch = build_batch([new_record(b"k", b"v", now_ms) for _ in range(count)])
        data = api.PartitionProduceData(index=partition, records=batch)
        topic = api.TopicProduceData(name=self.full(name), partition_data=[data])
        request = api.Request(acks=-1, timeout_ms=30_000, topic_data=[topic])
        answer = await self.connection.request("produce", request, 9)
        found = answer.responses[0].partition_responses[0]
        return found.error_code, found.base_offset

    async def delete_records(self, name: str, partition: int, offset: int) -> Answer:
        api = messages.api("delete_records")
        wanted = api.DeleteRecordsPartition(partition_index=partition, offset=offset)
        topic = api.DeleteRecordsTopic(name=self.full(name), partitions=[wanted])
        answer = await self.connection.request("delete_records", api.Request(topics=[topic], timeout_ms=30_000), 2)
        found = answer.topics[0].partitions[0]
        return found.error_code, found.low_watermark

    async def _described(self, name: str) -> Any:
        api = messages.api("metadata")
        wanted = api.MetadataRequestTopic(name=self.full(name))
        request = api.Request(topics=[wanted], allow_auto_topic_creation=False)
        return (await self.connection.request("metadata", request, 12)).topics[0]

    async def state(self) -> Answer:
        return tuple([await self._state_of(name) for name in ("a", "b")])

    async def _state_of(self, name: str) -> Answer:
        described = await self._described(name)
        partitions = [(p.partition_index, p.error_code, len(p.isr_nodes)) for p in described.partitions]
        if described.error_code:
            return (described.error_code,)
        api = messages.api("describe_configs")
        resource = api.DescribeConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=self.full(name), configuration_keys=list(SHOWN)
        )
        told = (await self.connection.request("describe_configs", api.Request(resources=[resource]), 4)).results[0]
        # Kafka writes its default min ISR into the settings of the cluster, for eligible leaders: another source only.
        configs = sorted(
            (one.name, one.value, one.config_source if one.name != "min.insync.replicas" else -1)
            for one in told.configs
        )
        offsets = [await self._offsets(name, index) for index, *_ in sorted(partitions)]
        return 0, sorted(partitions), told.error_code, configs, offsets

    async def _offsets(self, name: str, index: int) -> list[tuple[int, int]]:
        api = messages.api("list_offsets")
        found = []
        for timestamp in (-2, -1):
            wanted = api.ListOffsetsPartition(partition_index=index, timestamp=timestamp)
            topic = api.ListOffsetsTopic(name=self.full(name), partitions=[wanted])
            answer = (
                await self.connection.request("list_offsets", api.Request(replica_id=-1, topics=[topic]), 7)
            ).topics[0]
            found.append((answer.partitions[0].error_code, answer.partitions[0].offset))
        return found


def topic_step(chance: random.Random) -> Step:
    name = chance.choice(["a", "a", "a", "b", "b", chance.choice(NAMES)])
    known = name if name in ("a", "b") else "a"
    kind = chance.choice(
        [
            "create",
            "create",
            "create",
            "assign",
            "delete",
            "grow",
            "grow",
            "configure",
            "configure",
            "produce",
            "produce",
            "cut",
        ]
    )
    only_check = chance.random() < 0.1
    if kind == "create":
        partitions, factor = chance.choice([1, 2, 3, -1, 0]), chance.choice([1, 1, 1, -1, 2, 0])
        configs = dict([_setting(chance)]) if chance.random() < 0.4 else {}
        version = chance.choice([4, 5, 7])
        said = f"create {name!r} {partitions}×{factor} {configs} check={only_check} v{version}"
        return said, lambda side: side.create(name, partitions, factor, configs, only_check, version)
    if kind == "assign":
        replicas = chance.choice([[[0]], [[0], [0]], [[0, 0]], [[1]], [[]], [[0], [0, 1]]])
        return f"assign {known} {replicas}", lambda side: side.assign(known, replicas)
    if kind == "delete":
        by_id = chance.random() < 0.5
        return f"delete {known} by id={by_id}", lambda side: side.delete(known, by_id)
    if kind == "grow":
        count = chance.choice([1, 2, 3, 4, 5, 0, -1])
        replicas = chance.choice([None, None, None, [[0]], [[0], [0]], [[1]], [[0, 0]]])
        return f"grow {known} to {count} {replicas}", lambda side: side.grow(known, count, replicas, only_check)
    if kind == "configure":
        changes: list[tuple[str, int, str | None]] = []
        for _ in range(chance.randint(1, 2)):
            key, value = _setting(chance)
            how = chance.choice([0, 0, 0, 1, 2, 3])
            changes.append((key, how, None if how == 1 else value))
        return f"configure {known} {changes}", lambda side: side.configure(known, changes, only_check)
    if kind == "produce":
        partition, count = chance.choice([0, 0, 1, 2]), chance.randint(1, 4)
        return f"produce {known} {partition} {count}", lambda side: side.produce(known, partition, count)
    partition, offset = chance.choice([0, 0, 1]), chance.choice([0, 1, 2, 3, -1, -2, 100])
    return f"cut {known} {partition} {offset}", lambda side: side.delete_records(known, partition, offset)


def _setting(chance: random.Random) -> tuple[str, str]:
    key = chance.choice(list(VALUES))
    return key, chance.choice(VALUES[key])
