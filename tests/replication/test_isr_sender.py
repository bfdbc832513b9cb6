"""ISR changes on their way to the controller: a frozen one must not keep the next one from hearing them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.cluster.image import MetadataImage
from penstock.cluster.image_codec import ImagePush
from penstock.cluster.image_holder import ControllerOvertaken, ImageHolder
from penstock.protocol import messages
from penstock.replication.isr_sender import IsrSender
from penstock.replication.partition import Partition
from tests.replication.stage import Stage


async def told(images: ImageHolder, controller_id: int, epoch: int) -> None:
    """The controller of `epoch` pushes its first image."""
    image = MetadataImage("c", controller_id, epoch, version=1)
    await images.receive(ImagePush("c", controller_id, epoch, -1, full=image))


def accepted(request: Any) -> Any:
    api = messages.api("alter_partition")
    topics = []
    for asked in request.topics:
        rows = [
            api.response_struct("PartitionData")(
                partition_index=p.partition_index,
                leader_epoch=p.leader_epoch,
                isr=[member.broker_id for member in p.new_isr_with_epochs],
                partition_epoch=p.partition_epoch + 1,
            )
            for p in asked.partitions
        ]
        topics.append(api.response_struct("TopicData")(topic_id=asked.topic_id, partitions=rows))
    return api.Response(topics=topics)


def test_a_change_in_flight_to_a_frozen_controller_goes_to_its_successor() -> None:
    async def story() -> None:
        images = ImageHolder()
        await told(images, 2, 1)
        asked: list[int] = []
        arrived = asyncio.Event()

        async def ask_whoever_is_controller(request: Any) -> Any:
            controller = images.image.controller_id
            asked.append(controller)
            arrived.set()
            if controller == 2:
                await asyncio.get_running_loop().create_future()  # frozen: it never answers
            return accepted(request)

        sender = IsrSender(1, lambda: 101, lambda r: images.while_controller_stays(ask_whoever_is_controller(r)))
        stage = Stage(isr=(1, 2, 3))
        partition: Partition = stage.partition
        partition._propose_isr = sender.propose
        running = asyncio.ensure_future(sender.run())
        partition._propose((1, 3), ())
        await arrived.wait()
        assert asked == [2]
        await told(images, 3, 2)
        async with asyncio.timeout(30):
            while partition.isr != (1, 3):
                await asyncio.sleep(0)
        assert asked == [2, 3]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(story())


def test_a_newer_image_of_the_same_controller_disturbs_nothing() -> None:
    async def story() -> None:
        images = ImageHolder()
        await told(images, 2, 1)
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def ask() -> int:
            return await answer

        waiting = asyncio.ensure_future(images.while_controller_stays(ask()))
        await asyncio.sleep(0)
        image = MetadataImage("c", 2, 1, version=2)
        await images.receive(ImagePush("c", 2, 1, -1, full=image))
        answer.set_result(7)
        assert await waiting == 7

    asyncio.run(story())


def test_whoever_asked_the_old_controller_is_told_that_it_is_over() -> None:
    async def story() -> None:
        images = ImageHolder()
        await told(images, 2, 1)

        async def ask() -> None:
            await asyncio.get_running_loop().create_future()

        waiting = asyncio.ensure_future(images.while_controller_stays(ask()))
        await asyncio.sleep(0)
        await told(images, 3, 2)
        with pytest.raises(ControllerOvertaken):
            await waiting

    asyncio.run(story())


def test_changes_that_never_arrive_are_noticed() -> None:
    async def story() -> None:
        refused = True

        async def ask(request: Any) -> Any:
            if refused:
                raise ConnectionRefusedError("nobody listens there")
            return accepted(request)

        sender = IsrSender(1, lambda: 101, ask)
        partition = Stage(isr=(1, 2, 3)).partition
        partition._propose_isr = sender.propose
        partition._propose((1, 3), ())
        assert sender.failing_s == 0
        assert not await sender.send_open()
        await asyncio.sleep(0.001)
        assert sender.failing_s > 0
        refused = False
        assert await sender.send_open()
        assert (sender.failing_s, partition.isr) == (0, (1, 3))

    asyncio.run(story())
