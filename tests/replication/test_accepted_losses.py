"""An accepted loss holds until the lost replicas have been begun anew, whatever else images say and however often the
broker starts; it never holds for what is lost later."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.base.clock import ManualClock
from penstock.base.settings import LogConfig, Settings
from penstock.cluster.image import ImageDelta, MetadataImage, PartitionRegistration, TopicImage
from penstock.cluster.image_codec import ImagePush, ImagePushAnswer
from penstock.cluster.image_holder import PARTITIONS_PER_PART, ImageHolder
from penstock.log import disk as calls
from penstock.log.log_directory import accept_loss
from penstock.log.log_manager import LogManager
from penstock.replication.replica_manager import ReplicaManager

LOST = PartitionRegistration((1, 2), (2,), 2, 3, 5, new=())
BEGUN_ANEW = replace(LOST, partition_epoch=6, new=(1,))
ELSEWHERE = PartitionRegistration((2, 3), (2, 3), 2, 0, 0, new=())


def topic(name: str, *partitions: PartitionRegistration) -> TopicImage:
    return TopicImage(name, uuid.uuid5(uuid.NAMESPACE_DNS, name), dict(enumerate(partitions)))


def image_of(*topics: TopicImage, version: int = 1, unreadable: Mapping[str, str] | None = None) -> MetadataImage:
    changed = {one.name: one for one in topics}
    whole = MetadataImage(cluster_id="c").apply(ImageDelta(2, 1, -1, version, topics_changed=changed))
    return replace(whole, unreadable=unreadable or {})


class Life:
    """Broker 1 from a start to its end: its disk, its replicas, and the images that reach it."""

    def __init__(self, disk: Path) -> None:
        clock = ManualClock()
        self.logs = LogManager([disk], lambda topic: LogConfig(), clock, node_id=1, holds_replicas=True)
        self.logs.start()
        self.loop = asyncio.new_event_loop()
        self.replicas = ReplicaManager(1, Settings.load(None, {}), clock, self.logs, self.loop)
        self.images = ImageHolder("c")
        self.images.broker_epoch = 7
        self.images.offline_replicas = lambda: self.replicas.offline
        self.images.given_up_replicas = self.replicas.given_up
        self.images.when_taken_in = self.replicas.settle_losses
        self.images.subscribe(self.replicas.prepare)
        self.images.subscribe(self.replicas.apply)

    def hear(self, image: MetadataImage) -> ImagePushAnswer:
        return self.loop.run_until_complete(self.images.receive(ImagePush("c", 2, 1, 7, full=image)))

    def end(self) -> None:
        self.logs.stop()
        self.loop.close()


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """A new disk, and the operator's word that the old one is gone."""
    accept_loss(tmp_path / "disk")
    return tmp_path / "disk"


@pytest.mark.parametrize("others", [1, 2 * PARTITIONS_PER_PART])
@pytest.mark.parametrize("others_come_first", [True, False])
def test_partitions_of_other_brokers_do_not_use_it_up(disk: Path, others: int, others_come_first: bool) -> None:
    """They once did: every partition that is assigned elsewhere counted as "nothing is missing"."""
    topics = [topic("elsewhere", *[ELSEWHERE] * others), topic("t", LOST)]
    known = image_of(*topics if others_come_first else reversed(topics))
    for _ in range(2):  # the broker ends before anybody has answered, and asks again when it is back
        life = Life(disk)
        answer = life.hear(known)
        assert answer.offline == answer.given_up == (("t", 0),)
        life.end()
    life = Life(disk)
    life.hear(known)
    answer = life.hear(image_of(topics[0], topic("t", BEGUN_ANEW), version=2))
    assert (answer.offline, answer.given_up) == ((), ())
    assert life.replicas.find("t", 0) is not None
    assert not life.logs.loss_is_accepted, "what is lost next is a new question"
    life.end()


def test_it_holds_for_the_others_when_one_replica_is_begun(disk: Path) -> None:
    life = Life(disk)
    life.hear(image_of(topic("t", LOST, LOST)))
    answer = life.hear(image_of(topic("t", BEGUN_ANEW, LOST), version=2))
    assert answer.given_up == (("t", 1),)
    life.end()


def test_it_holds_while_a_topic_cannot_be_read(disk: Path) -> None:
    life = Life(disk)
    life.hear(image_of(topic("elsewhere", ELSEWHERE), unreadable={"t": "damaged"}))
    answer = life.hear(image_of(topic("elsewhere", ELSEWHERE), topic("t", LOST), version=2))
    assert answer.given_up == (("t", 0),)
    life.end()


def test_it_holds_for_a_replica_that_waits_for_space(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    life = Life(disk)
    life.hear(image_of(topic("t", LOST)))
    with monkeypatch.context() as full_disk:
        full_disk.setattr(calls, "mkdir", refuse)
        assert life.hear(image_of(topic("t", BEGUN_ANEW), version=2)).offline == ()
    life.end()
    life = Life(disk)
    assert life.hear(image_of(topic("t", LOST), version=3)).given_up == (("t", 0),), "it was never made"
    life.end()


def test_a_replica_that_is_lost_later_is_not_begun_anew(disk: Path) -> None:
    life = Life(disk)
    life.hear(image_of(topic("t", LOST)))
    life.hear(image_of(topic("t", BEGUN_ANEW), version=2))
    life.end()
    shutil.rmtree(disk / "t-0")
    life = Life(disk)
    answer = life.hear(image_of(topic("t", LOST), version=3))
    assert (answer.offline, answer.given_up) == ((("t", 0),), ())
    assert not (disk / "t-0").exists()
    life.end()
