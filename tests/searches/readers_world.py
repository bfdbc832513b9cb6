"""A broker whose topics are written, cut, compacted, deleted and made anew, and what is known of each record in them.

Every value says where it belongs: the life of its topic, its partition, its transaction and a number of its own.
"""

from __future__ import annotations

import random
import time
import uuid

from raw_client import RawClient, batch, ensure_topic, fetch_request, produce_request

import penstock
from penstock.client.sync import SyncClient
from penstock.protocol import messages
from penstock.protocol.batch import build_batch
from penstock.protocol.records import new_record
from penstock.testing.raw_transactions import RawProducer

PARTITIONS = 3
TOPICS = ("plain", "other", "compacted")
SETTINGS = {
    "auto.create.topics.enable": "false",
    "log.cleaner.backoff.ms": "20",
    "log.retention.check.interval.ms": "100",
    "max.incremental.fetch.session.cache.slots": "6",  # fewer than readers: some lose theirs
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
NO_TRANSACTION = 0
SIZES = (0, 10, 50, 100, 100, 500, 5000, 40_000)


class Life:
    """One topic between its making and its deletion."""

    def __init__(self, number: int, name: str, topic_id: uuid.UUID) -> None:
        self.number, self.name, self.topic_id = number, name, topic_id
        self.keeps_all = name != "compacted"  # but what DeleteRecords removes
        self.values: list[dict[int, bytes]] = [{} for _ in range(PARTITIONS)]
        self.starts = [0] * PARTITIONS


class Writer:
    """A transactional producer, one transaction after the other."""

    def __init__(self, world: World, number: int) -> None:
        self._world = world
        self._producer = RawProducer(world.client, f"writer-{number}")
        self.open = NO_TRANSACTION
        self.touched: set[str] = set()

    def step(self) -> None:
        world = self._world
        if not self.open:
            self.open = len(world.fates) + 1
            world.fates[self.open] = "open"
        if self.touched and world.draw.random() < 0.4:
            self.finish(world.draw.random() < 0.5)
            return
        life, index = world.some_partition()
        world.expect(self._send(life, index), "a transactional batch")
        self.touched.add(life.name)

    def _send(self, life: Life, index: int) -> int:
        value = self._world.value(life, index, self.open, 5000)
        producer = self._producer
        sequence = producer.sequences.get((life.name, index), 0)
        record = new_record(self._world.key(), value, int(time.time() * 1000))
        made = build_batch(
            [record], producer_id=producer.producer_id, producer_epoch=producer.epoch, base_sequence=sequence,
            transactional=True,
        )  # fmt: skip
        stored = self._world.client.produce(
            life.name, index, made, transactional_id=producer.transactional_id, implicit_partitions=True
        )
        producer.sequences[(life.name, index)] = sequence + 1
        life.values[index][stored.base_offset] = value
        return 0

    def finish(self, commit: bool) -> None:
        if self.open:
            self._world.fates[self.open] = "committed" if commit else "aborted"  # from now on it may be seen so
            self._world.expect(self._producer.end(commit), "the end of a transaction")
        self.open = NO_TRANSACTION
        self.touched.clear()


class World:
    def __init__(self, broker: penstock.Broker, draw: random.Random) -> None:
        self.port, self.draw = broker.port, draw
        self.differences: list[str] = []
        self.fates: dict[int, str] = {}
        self.lives: dict[str, Life] = {}
        self.by_id: dict[uuid.UUID, Life] = {}
        self.forbidden: str | None = None
        self.rights_changed_at = 0.0
        self.limited = False
        self._numbers = 0
        self._admin = RawClient(broker.port)
        self.client = SyncClient(broker.bootstrap)
        for name in TOPICS:
            self._create(name)
        self.writers = [Writer(self, number) for number in range(2)]

    def close(self) -> None:
        self.client.close()
        self._admin.socket.close()

    def expect(self, error: int, what: str) -> None:
        if error:
            self.differences.append(f"{what}: error {error}")

    def some_partition(self, *names: str) -> tuple[Life, int]:
        life = self.lives[self.draw.choice(names or TOPICS)]
        return life, self.draw.randrange(PARTITIONS) if self.draw.random() < 0.4 else 0

    def key(self) -> bytes:
        return b"key %d" % self.draw.randrange(4)

    def value(self, life: Life, index: int, transaction: int, most: int) -> bytes:
        self._numbers += 1
        return b"%d|%d|%d|%d|" % (life.number, index, transaction, self._numbers) + b"x" * min(
            self.draw.choice(SIZES), most
        )

    # What happens --------------------------------------------------------------------------------------------------

    def produce(self) -> None:
        self.produce_to(*self.some_partition())

    def produce_to(self, life: Life, index: int) -> None:
        values = [self.value(life, index, NO_TRANSACTION, 40_000) for _ in range(self.draw.choice((1, 1, 1, 3)))]
        made = produce_request(
            life.name, batch(*values, key=self.key()), partition=index, acks=self.draw.choice((1, -1))
        )
        (told,) = self._admin.call("produce", 9, made).responses[0].partition_responses
        self.expect(told.error_code, "a produce")
        for number, value in enumerate(values):
            life.values[index][told.base_offset + number] = value

    def transact(self) -> None:
        self.draw.choice(self.writers).step()

    def delete_records(self) -> None:
        life, index = self.some_partition("plain", "other")
        api = messages.api("delete_records").load_all_versions()
        offset = self.draw.choice((-1, self.draw.randint(0, max(life.values[index], default=0))))
        wanted = api.DeleteRecordsPartition(partition_index=index, offset=offset)
        request = api.Request(topics=[api.DeleteRecordsTopic(name=life.name, partitions=[wanted])], timeout_ms=5000)
        (told,) = self._admin.call("delete_records", 2, request).topics[0].partitions
        if not told.error_code:
            life.starts[index] = max(life.starts[index], told.low_watermark)

    def make_anew(self) -> None:
        name = self.draw.choice(TOPICS)
        for writer in self.writers:
            if name in writer.touched:
                writer.finish(self.draw.random() < 0.5)
        api = messages.api("delete_topics").load_all_versions()
        self._admin.call("delete_topics", 5, api.Request(topic_names=[name], timeout_ms=10_000))
        self._create(name)

    def _create(self, name: str) -> None:
        api = messages.api("create_topics").load_all_versions()
        configs = {"segment.ms": str(self.draw.choice((1, 50, 100_000)))}
        if name == "compacted":
            configs = {"segment.ms": "20", "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.0"}
        values = [api.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()]
        wanted = api.CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=1, configs=values)
        deadline = time.monotonic() + 20
        while True:
            (told,) = self._admin.call("create_topics", 5, api.Request(topics=[wanted], timeout_ms=10_000)).topics
            if not told.error_code:
                break
            assert told.error_code == 36 and time.monotonic() < deadline, told.error_code  # the old one still goes
        life = Life(len(self.by_id) + 1, name, ensure_topic(self.port, name))
        self.lives[name] = self.by_id[life.topic_id] = life

    def forbid_or_allow(self) -> None:
        topic = self.forbidden or self.draw.choice(("plain", "other"))
        if self.forbidden is None:
            self.forbidden = topic
            api = messages.api("create_acls").load_all_versions()
            for operation, permission in ((3, 2), (2, 3)):  # no reading, but describing
                rule = api.AclCreation(
                    resource_type=2, resource_name=self.forbidden, resource_pattern_type=3, principal="User:ANONYMOUS",
                    host="*", operation=operation, permission_type=permission,
                )  # fmt: skip
                self._admin.call("create_acls", 2, api.Request(creations=[rule]))
        else:
            api = messages.api("delete_acls").load_all_versions()
            every = api.DeleteAclsFilter(
                resource_type_filter=2, resource_name_filter=None, pattern_type_filter=1, principal_filter=None,
                host_filter=None, operation=1, permission_type=1,
            )  # fmt: skip
            self._admin.call("delete_acls", 2, api.Request(filters=[every]))
            self.forbidden = None
        with RawClient(self.port) as fresh:
            deadline = time.monotonic() + 20
            while self._refuses(fresh, topic) != (self.forbidden is not None):
                assert time.monotonic() < deadline, "other rights do not come into force"
        self.rights_changed_at = time.monotonic()

    def _refuses(self, client: RawClient, topic: str) -> bool:
        (told,) = client.call("fetch", 12, fetch_request(topic, 0)).responses[0].partitions
        return bool(told.error_code == 29)

    def limit_or_free(self) -> None:
        self.limited = not self.limited
        api = messages.api("alter_client_quotas").load_all_versions()
        entity = api.request_struct("EntityData")(entity_type="client-id", entity_name="raw")
        change = api.OpData(key="consumer_byte_rate", value=200_000.0 * self.limited, remove=not self.limited)
        entry = api.request_struct("EntryData")(entity=[entity], ops=[change])
        self._admin.call("alter_client_quotas", 1, api.Request(entries=[entry]))

    def log_start(self, name: str, index: int) -> int:
        return self._offset(name, index, -2)

    def log_end(self, name: str, index: int) -> int:
        return self._offset(name, index, -1)

    def _offset(self, name: str, index: int, timestamp: int) -> int:
        api = messages.api("list_offsets").load_all_versions()
        wanted = api.ListOffsetsPartition(partition_index=index, timestamp=timestamp)
        request = api.Request(topics=[api.ListOffsetsTopic(name=name, partitions=[wanted])])
        (told,) = self._admin.call("list_offsets", 5, request).topics[0].partitions
        return max(int(told.offset), 0)
