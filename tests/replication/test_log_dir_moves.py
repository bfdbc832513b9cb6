"""Moving a replica to another log directory while it is written and read (AlterReplicaLogDirs)."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import penstock
from penstock.client.client import Client
from penstock.client.retry import RetryPolicy
from penstock.client.sync import SyncClient
from penstock.protocol import messages
from penstock.protocol.batch import build_batch
from penstock.protocol.errors import ErrorCode
from penstock.protocol.records import new_record

DEADLINE_SECONDS = 60.0


def move(bootstrap: str, path: str, topic: str = "moving", partition: int = 0) -> int:
    api = messages.api("alter_replica_log_dirs")

    async def ask() -> int:
        async with Client(bootstrap, retry=RetryPolicy(total_timeout_s=1)) as client:  # the error is the answer
            topics = [api.AlterReplicaLogDirTopic(name=topic, partitions=[partition])]
            answer = await client.call_any(
                "alter_replica_log_dirs", api.Request(dirs=[api.AlterReplicaLogDir(path=path, topics=topics)])
            )
            return int(answer.results[0].partitions[0].error_code)

    return asyncio.run(ask())


def test_a_replica_moves_under_load_and_nothing_is_lost(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    settings = {"log.dirs": f"{first},{second}", "log.segment.bytes": "1048576"}
    with penstock.Broker(settings=settings) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("moving", 1, 1)])["moving"].result(20)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all", "enable.idempotence": True})
        sent = 0

        def send(count: int) -> None:
            nonlocal sent
            for _ in range(count):
                producer.produce("moving", str(sent).encode().ljust(1000), partition=0)
                sent += 1
                producer.poll(0)
            assert producer.flush(30) == 0

        send(5000)
        source, target = (first, second) if (first / "moving-0").exists() else (second, first)
        assert move(broker.bootstrap, str(target)) == 0
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not (target / "moving-0").exists() or (source / "moving-0").exists():
            assert time.monotonic() < deadline, "the replica does not arrive"
            send(200)
        send(500)
        assert move(broker.bootstrap, str(target)) == 0
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
        consumer.assign([TopicPartition("moving", 0, OFFSET_BEGINNING)])
        read: list[bytes] = []
        while len(read) < sent:
            assert time.monotonic() < deadline, f"only {len(read)} of {sent} can be read"
            read += [message.value().strip() for message in consumer.consume(1000, 0.5) if message.error() is None]
        consumer.close()
        assert read == [str(n).encode() for n in range(sent)]


def test_a_replica_whose_records_were_deleted_up_to_the_middle_of_a_batch_moves(tmp_path: Path) -> None:
    folders = (tmp_path / "a", tmp_path / "b")
    with penstock.Broker(settings={"log.dirs": ",".join(map(str, folders))}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("moving", 1, 1)])["moving"].result(20)
        with SyncClient(broker.bootstrap) as client:
            client.produce("moving", 0, build_batch([new_record(None, b"value", 1) for _ in range(10)]))
            for deleted in admin.delete_records([TopicPartition("moving", 0, 5)]).values():
                deleted.result(20)
            source, target = folders if (folders[0] / "moving-0").exists() else reversed(folders)
            assert move(broker.bootstrap, str(target)) == 0
            deadline = time.monotonic() + DEADLINE_SECONDS
            while not (target / "moving-0").exists() or (source / "moving-0").exists():
                assert time.monotonic() < deadline, "the replica does not arrive"
                time.sleep(0.01)
            fetched = client.fetch({("moving", 0): 5})[("moving", 0)]
    assert (fetched.error_code, fetched.log_start_offset, fetched.high_watermark) == (0, 5, 10)
    assert len(fetched.records) > 0


@pytest.mark.parametrize(
    ("path", "topic", "error"),
    [
        ("/nowhere", "moving", ErrorCode.LOG_DIR_NOT_FOUND),
        (None, "unknown", ErrorCode.REPLICA_NOT_AVAILABLE),
    ],
)
def test_what_cannot_move(tmp_path: Path, path: str | None, topic: str, error: ErrorCode) -> None:
    with penstock.Broker(settings={"log.dirs": f"{tmp_path / 'a'},{tmp_path / 'b'}"}) as broker:
        assert move(broker.bootstrap, path or str(tmp_path / "b"), topic) == error
