"""The loads of a soak: threads with librdkafka over SASL_SSL, each doing one thing again and again, and counting it."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from penstock.client.client import Client
from penstock.client.errors import AuthenticationFailed
from penstock.client.security import Security
from penstock.protocol import messages
from penstock.protocol.errors import ErrorCode

PASSWORD = "worker of the soak"
TOPICS = {
    "soak.orders": {"retention.bytes": "3000000", "segment.bytes": "1048576", "file.delete.delay.ms": "1000"},
    "soak.copies": {"retention.bytes": "3000000", "segment.bytes": "1048576", "file.delete.delay.ms": "1000"},
    "soak.state": {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.2"},
}


@dataclass(frozen=True)
class Place:
    bootstrap: str
    ca: str

    def config(self, name: str = "worker", password: str = PASSWORD, **more: Any) -> dict[str, Any]:
        mechanism = "PLAIN" if name == "admin" else "SCRAM-SHA-512"
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.username": name,
            "sasl.password": "admin of the soak" if name == "admin" else password,
            "ssl.ca.location": self.ca,
            "log_level": 0,
            **{key.replace("_", "."): value for key, value in more.items()},
        }


def prepare(place: Place) -> None:
    """Topics, a user with just the rights that the loads need, and a quota that is there but not reached."""
    admin = AdminClient(place.config("admin"))
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    changes: list[Any] = [UserScramCredentialUpsertion("worker", info, PASSWORD.encode())]
    wait = [*admin.alter_user_scram_credentials(changes).values()]
    wait += admin.create_topics([NewTopic(name, 3, 1, config=config) for name, config in TOPICS.items()]).values()
    rights = [
        (ResourceType.TOPIC, "soak.", AclOperation.ALL),
        (ResourceType.GROUP, "soak.", AclOperation.ALL),
        (ResourceType.TRANSACTIONAL_ID, "soak.", AclOperation.ALL),
    ]
    bindings = [
        AclBinding(kind, name, ResourcePatternType.PREFIXED, "User:worker", "*", operation, AclPermissionType.ALLOW)
        for kind, name, operation in rights
    ]
    wait += admin.create_acls(bindings).values()
    for future in wait:
        future.result(60)
    _set_quota(place)


def _set_quota(place: Place) -> None:
    security = Security(
        protocol="SASL_SSL", mechanism="PLAIN", username="admin", password="admin of the soak", ca_location=place.ca
    )
    api = messages.api("alter_client_quotas").load_all_versions()
    entity = api.request_struct("EntityData")(entity_type="user", entity_name="worker")
    limits = {"producer_byte_rate": 50e6, "consumer_byte_rate": 50e6, "request_percentage": 150.0}
    changes = [api.request_struct("OpData")(key=key, value=value, remove=False) for key, value in limits.items()]
    request = api.Request(entries=[api.request_struct("EntryData")(entity=[entity], ops=changes)], validate_only=False)

    async def story() -> None:
        async with Client([place.bootstrap], security=security) as client:
            answer = await client.call_any("alter_client_quotas", request)
            assert [entry.error_code for entry in answer.entries] == [0], answer

    asyncio.run(story())


class Load(threading.Thread, ABC):
    """Counts what it has done; what went wrong is kept as words."""

    name = "load"

    def __init__(self, place: Place) -> None:
        super().__init__(name=type(self).name, daemon=True)
        self.place = place
        self.stopping = threading.Event()
        self.done = 0
        self.errors: list[str] = []

    @abstractmethod
    def work(self) -> None:
        """Until `stopping`."""

    def run(self) -> None:
        try:
            self.work()
        except Exception as error:
            self.errors.append(repr(error))

    def delivered(self, error: KafkaError | None, _message: Any) -> None:
        if error is None:
            self.done += 1
        else:
            self.errors.append(str(error))


class Orders(Load):
    name = "records written, idempotent, lz4"

    def work(self) -> None:
        producer = Producer(self.place.config(enable_idempotence=True, compression_type="lz4", linger_ms=50))
        noise = random.Random(1)
        for number in itertools.count():
            if self.stopping.is_set():
                break
            producer.produce("soak.orders", noise.randbytes(400), str(number % 997), on_delivery=self.delivered)
            producer.poll(0)
            if number % 40 == 0:
                self.stopping.wait(0.1)
        producer.flush(60)


class State(Load):
    name = "records written to a compacted topic, zstd"

    def work(self) -> None:
        producer = Producer(self.place.config(compression_type="zstd", linger_ms=100))
        noise = random.Random(2)
        for number in itertools.count():
            if self.stopping.is_set():
                break
            producer.produce("soak.state", noise.randbytes(400), str(number % 300), on_delivery=self.delivered)
            producer.poll(0)
            if number % 20 == 0:
                self.stopping.wait(0.2)
        producer.flush(60)


class Copies(Load):
    name = "transactions, every seventh aborted"

    def work(self) -> None:
        config = self.place.config(
            group_id="soak.copiers",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        consumer = Consumer(config)
        consumer.subscribe(["soak.orders"])
        producer = Producer(self.place.config(transactional_id="soak.copier"))
        producer.init_transactions(60)
        while not self.stopping.is_set():
            messages = [one for one in consumer.consume(500, 1.0) if one.error() is None]
            if not messages:
                continue
            producer.begin_transaction()
            for one in messages:
                producer.produce("soak.copies", one.value(), one.key())
            if self.done % 7 == 6:
                # librdkafka that aborts before the coordinator knows of the transaction ends with INVALID_TXN_STATE.
                producer.flush(60)
                producer.abort_transaction(60)
            else:
                producer.send_offsets_to_transaction(
                    consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), 60
                )
                producer.commit_transaction(60)
            self.done += 1
        consumer.close()


class Readers(Load):
    name = "records read by a group whose members come and go"

    def work(self) -> None:
        for turn in itertools.count():
            protocol: dict[str, Any] = {"group.protocol": "consumer"} if turn % 2 else {"session.timeout.ms": 10_000}
            config = {**self.place.config(group_id=f"soak.readers-{turn % 2}", auto_offset_reset="latest"), **protocol}
            members = [Consumer(config) for _ in range(2)]
            for member in members:
                member.subscribe(["^soak\\..*"])
            ends = time.monotonic() + 20
            while time.monotonic() < ends and not self.stopping.is_set():
                for member in members:
                    self.done += sum(one.error() is None for one in member.consume(500, 0.1))
            for member in members:
                member.close()
            if self.stopping.is_set():
                return


class Administration(Load):
    name = "topics made, changed and deleted"

    def work(self) -> None:
        admin = AdminClient(self.place.config("admin"))
        for turn in itertools.count():
            name = f"soak.passing-{turn}"
            admin.create_topics([NewTopic(name, 2, 1)])[name].result(60)
            change = ConfigEntry("retention.ms", "600000", incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[change])
            admin.incremental_alter_configs([resource])[resource].result(60)
            admin.list_topics(timeout=60)
            admin.list_consumer_groups().result(60)
            admin.delete_topics([name])[name].result(60)
            self.done += 1
            if self.stopping.wait(3):
                return


class Visitors(Load):
    name = "clients that log in, write once and go"

    def work(self) -> None:
        while not self.stopping.wait(1):
            producer = Producer(self.place.config())
            producer.produce("soak.state", b"from a visitor", b"visitor", on_delivery=self.delivered)
            if producer.flush(60):
                self.errors.append("a visitor was not answered")


class Strangers(Load):
    name = "strangers refused: a wrong password, a forbidden topic"

    def work(self) -> None:
        api = messages.api("metadata").load_all_versions()
        topic = api.request_struct("MetadataRequestTopic")(name="forbidden")
        request = api.Request(topics=[topic], allow_auto_topic_creation=False)
        while not self.stopping.wait(5):
            try:
                asyncio.run(self._ask("a guess", request))
                self.errors.append("a wrong password was taken")
            except AuthenticationFailed:
                self.done += 1
            (found,) = asyncio.run(self._ask(PASSWORD, request)).topics
            if found.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                self.done += 1
            else:
                self.errors.append(f"a forbidden topic gave error {found.error_code}")

    async def _ask(self, password: str, request: Any) -> Any:
        security = Security(
            protocol="SASL_SSL",
            mechanism="SCRAM-SHA-512",
            username="worker",
            password=password,
            ca_location=self.place.ca,
        )
        async with Client([self.place.bootstrap], security=security) as client:
            return await client.call_any("metadata", request)


LOADS: tuple[type[Load], ...] = (Orders, State, Copies, Readers, Administration, Visitors, Strangers)
