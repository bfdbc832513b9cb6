"""A log directory that is not there at the start: its replicas wait for it, and nothing begins anew behind its back."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import penstock
from penstock.log import disk
from penstock.log.log_directory import META_PROPERTIES, accept_loss, read_properties
from penstock.log.results import LogDirectoryFailed

PARTITIONS = 4
NewBroker = Callable[[], penstock.Broker]


@pytest.fixture
def dirs(tmp_path: Path) -> list[Path]:
    return [tmp_path / "a", tmp_path / "b"]


@pytest.fixture
def new_broker(tmp_path: Path, dirs: list[Path]) -> Iterator[NewBroker]:
    """Brokers over the same two disks, with the store on a third."""
    made: list[penstock.Broker] = []

    def make() -> penstock.Broker:
        settings = {"log.dirs": ",".join(map(str, dirs)), "penstock.store.path": str(tmp_path / "store.db")}
        made.append(penstock.Broker(tmp_path, settings=settings))
        return made[-1].start()

    yield make
    for broker in made:
        broker.stop()


def produce(broker: penstock.Broker, partition: int, value: bytes, patience_ms: int = 30_000) -> int:
    """Its offset, or an exception when the time is up."""
    outcome: list[int] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.timeout.ms": patience_ms})

    def done(error: object, message: object) -> None:
        if error is None:
            outcome.append(message.offset())  # type: ignore[attr-defined]

    producer.produce("t", value, partition=partition, on_delivery=done)
    producer.flush(40)
    if not outcome:
        raise KafkaException(f"partition {partition} took nothing")
    return outcome[0]


def refuses(broker: penstock.Broker, partition: int) -> bool:
    try:
        produce(broker, partition, b"nobody takes it", patience_ms=1500)
    except KafkaException:
        return True
    return False


def first_values(broker: penstock.Broker) -> dict[int, bytes]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition("t", index, 0) for index in range(PARTITIONS)])
    found: dict[int, bytes] = {}
    while len(found) < PARTITIONS:
        message = consumer.poll(10)
        assert message is not None and message.error() is None
        found.setdefault(message.partition(), message.value())
    consumer.close()
    return found


def filled(new_broker: NewBroker, dirs: list[Path]) -> list[int]:
    """A topic with a record in each partition; which partitions lie in the second directory."""
    broker = new_broker()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result(10)
    for index in range(PARTITIONS):
        produce(broker, index, b"first")
    broker.stop()
    inside = [index for index in range(PARTITIONS) if (dirs[1] / f"t-{index}").is_dir()]
    assert 0 < len(inside) < PARTITIONS
    return inside


def take_away(directory: Path) -> Path:
    return directory.rename(directory.with_name("unmounted"))


def test_partitions_of_a_missing_disk_are_off_line_and_come_back_with_it(
    new_broker: NewBroker, dirs: list[Path]
) -> None:
    lost = filled(new_broker, dirs)
    away = take_away(dirs[1])
    broker = new_broker()
    for index in range(PARTITIONS):
        if index in lost:
            assert refuses(broker, index)
        else:
            assert produce(broker, index, b"second") == 1
    broker.stop()
    assert not dirs[1].exists(), "a mount point is nothing to write into"
    away.rename(dirs[1])
    broker = new_broker()
    assert first_values(broker) == dict.fromkeys(range(PARTITIONS), b"first")
    assert produce(broker, lost[0], b"second") == 1


def test_an_unusable_disk_does_not_make_its_partitions_begin_anew(new_broker: NewBroker, dirs: list[Path]) -> None:
    lost = filled(new_broker, dirs)
    away = take_away(dirs[1])
    dirs[1].write_text("not a folder")
    broker = new_broker()
    assert refuses(broker, lost[0])
    broker.stop()
    dirs[1].unlink()
    away.rename(dirs[1])
    assert first_values(new_broker()) == dict.fromkeys(range(PARTITIONS), b"first")


def test_a_replaced_disk_is_used_when_the_operator_says_so(new_broker: NewBroker, dirs: list[Path]) -> None:
    lost = filled(new_broker, dirs)
    take_away(dirs[1])
    dirs[1].mkdir()
    broker = new_broker()
    assert refuses(broker, lost[0])
    broker.stop()
    accept_loss(dirs[1])
    broker = new_broker()
    assert produce(broker, lost[0], b"second") == 0
    broker.stop()
    # The word counted once: the next loss is a new question.
    dirs[1].rename(dirs[1].with_name("broken, too"))
    dirs[1].mkdir()
    assert refuses(new_broker(), lost[0])


def test_a_broker_without_any_of_its_disks_does_not_start(new_broker: NewBroker, dirs: list[Path]) -> None:
    filled(new_broker, dirs)
    for number, directory in enumerate(dirs):
        directory.rename(directory.with_name(f"gone{number}"))
    with pytest.raises(LogDirectoryFailed, match="accept-loss"):
        new_broker()


def test_a_replica_in_two_directories_is_taken_once_and_nothing_is_deleted(
    new_broker: NewBroker, dirs: list[Path]
) -> None:
    inside = filled(new_broker, dirs)
    twin = dirs[0] / f"t-{inside[0]}"
    twin.mkdir()
    (twin / "partition.metadata").write_bytes((dirs[1] / twin.name / "partition.metadata").read_bytes())
    broker = new_broker()
    assert first_values(broker) == dict.fromkeys(range(PARTITIONS), b"first")
    assert not twin.exists() and list(dirs[0].glob(f"{twin.name}.*-stray"))


def test_a_replica_that_had_no_room_for_its_folder_is_made_by_the_next_life(
    new_broker: NewBroker, dirs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Served from a promise, it left no trace: were it confirmed, the next life would take it for lost."""

    def refuse(path: Path, *_: object) -> None:
        if path.name.startswith("t-"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        path.mkdir()

    broker = new_broker()
    with monkeypatch.context() as full_disk:
        full_disk.setattr(disk, "mkdir", refuse)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(30)
        assert refuses(broker, 0)
        broker.stop()
    assert not any((directory / "t-0").exists() for directory in dirs)
    assert produce(new_broker(), 0, b"first") == 0


def test_a_directory_keeps_its_id(new_broker: NewBroker, dirs: list[Path]) -> None:
    new_broker().stop()
    first = [read_properties(directory / META_PROPERTIES)["directory.id"] for directory in dirs]
    new_broker().stop()
    assert first == [read_properties(directory / META_PROPERTIES)["directory.id"] for directory in dirs]
    assert len(set(first)) == 2 and all(len(one) == 22 for one in first)


def test_a_lone_replica_leads_in_a_new_epoch_after_a_restart(new_broker: NewBroker, dirs: list[Path]) -> None:
    """It may have lost its tail, and clients find out by the epoch."""
    filled(new_broker, dirs)
    epochs = []
    for _ in range(2):
        broker = new_broker()
        epochs.append(broker._broker.image.topics["t"].partitions[0].leader_epoch)
        broker.stop()
    assert epochs[1] > epochs[0]
