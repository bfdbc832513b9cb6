"""Several brokers on one store: election, fail-over, fencing, registration, image delivery."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from penstock.cluster import znodes
from penstock.cluster.configs import Alteration, AlterKind
from penstock.cluster.controller_driver import NotController
from penstock.cluster.controller_store import ControllerMoved
from penstock.cluster.events import (
    AlterPartitions,
    AlterReassignments,
    ElectionKind,
    ElectLeaders,
    IsrChange,
    IsrMember,
)
from penstock.cluster.image import NO_LEADER
from penstock.cluster.image_codec import FORMAT, IMAGE_FEATURE, ImagePush
from penstock.cluster.member import BrokerIdInUse
from penstock.cluster.topics import MorePartitions, NewTopic
from penstock.protocol.errors import ErrorCode
from penstock.store.embedded import EmbeddedDatabase, EmbeddedStore
from penstock.store.interface import SetData, TreeStore
from tests.cluster.members import Member, agree, cluster, eventually, join

NewSession = Callable[[], TreeStore]
MINUTE_MS = 60_000


def active(members: list[Member]) -> Member:
    (found,) = [m for m in members if m.controller.is_active]
    return found


async def create(member: Member, name: str, partitions: int = 1, factor: int = 1, **configs: str) -> None:
    wanted = NewTopic(name, partitions, factor, configs={k.replace("_", "."): v for k, v in configs.items()})
    (answer,) = await member.topics.create([wanted], MINUTE_MS)
    assert answer.error_code == ErrorCode.NONE, answer.message


def test_one_of_them_is_the_controller_and_all_see_the_same(new_session: NewSession) -> None:
    async def story() -> None:
        async with cluster(new_session, 3) as (_, members):
            assert active(members).node_id == 1
            assert len({m.cluster_id for m in members}) == 1
            await create(members[2], "t", 6, 3, retention_ms="7")
            await agree(members, lambda m: "t" in m.image.topics)
            assert members[0].image == members[1].image == members[2].image
            leaders = [p.leader for p in members[0].image.topics["t"].partitions.values()]
            assert sorted(leaders) == [1, 1, 2, 2, 3, 3]
            with pytest.raises(NotController):
                await members[1].controller.elect_leaders(ElectLeaders(ElectionKind.PREFERRED, None))

    asyncio.run(story())


def test_when_the_controller_leaves_another_takes_over_with_a_higher_epoch(new_session: NewSession) -> None:
    async def story() -> None:
        async with cluster(new_session, 3) as (wire, members):
            await create(members[0], "t", 3, 3)
            await members[0].leave()
            del wire.members[1]
            rest = members[1:]
            await agree(rest, lambda m: m.image.controller_epoch == 2 and 1 not in m.image.brokers)
            await agree(rest, lambda m: all(p.leader in (2, 3) for p in m.image.topics["t"].partitions.values()))
            assert active(rest).image.controller_id == active(rest).node_id
            await create(rest[0], "after", 1, 2)

    asyncio.run(story())


def test_nothing_is_published_before_it_is_stored() -> None:
    """A broker that acts by a decision which a crash takes back may have deleted a replica for it."""
    database = EmbeddedDatabase()

    class Halting(EmbeddedStore):
        halted: asyncio.Event | None = None
        go_on = asyncio.Event()

        async def multi(self, operations: Any) -> Any:
            if self.halted is not None:
                self.halted.set()
                await self.go_on.wait()
            return await super().multi(operations)

    async def story() -> None:
        async with cluster(lambda: Halting(database), 2) as (_, members):
            store = active(members).store
            assert isinstance(store, Halting)
            store.halted = asyncio.Event()
            creating = asyncio.ensure_future(create(members[1], "t", 1, 2))
            await store.halted.wait()
            assert "t" not in active(members).controller.state.image.topics
            assert all("t" not in m.image.topics for m in members)
            store.go_on.set()
            await creating
            await agree(members, lambda m: "t" in m.image.topics)

    asyncio.run(story())


def test_a_deposed_controller_cannot_write_any_more(new_session: NewSession) -> None:
    async def story() -> None:
        async with cluster(new_session, 2) as (_, members):
            await create(members[0], "t", 1, 2)
            zombie = members[0].controller._writer
            old_push = ImagePush(members[0].cluster_id, 1, 1, members[1].broker_epoch, full=members[0].image)
            assert zombie is not None
            await members[0].store.delete(znodes.CONTROLLER)
            await agree(members, lambda m: m.image.controller_epoch >= 2)
            with pytest.raises(ControllerMoved):
                await zombie.write_operations([SetData(znodes.topic_path("t"), b"zombie")])
            answer = await members[1].images.receive(old_push)
            assert answer.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
            assert b"zombie" not in (await members[1].store.get(znodes.topic_path("t"))).data

    asyncio.run(story())


def test_a_broker_that_misses_deltas_gets_the_full_image(new_session: NewSession) -> None:
    async def story() -> None:
        async with cluster(new_session, 2) as (wire, members):
            wire.cut.add(2)
            await create(members[0], "a")
            await create(members[0], "b")
            assert "a" not in members[1].image.topics
            before = wire.full_images[2]
            wire.cut.clear()
            await agree(members, lambda m: {"a", "b"} <= m.image.topics.keys())
            assert wire.full_images[2] == before + 1

    asyncio.run(story())


def test_configs_are_changed_by_any_broker_and_seen_by_all(new_session: NewSession) -> None:
    async def story() -> None:
        async with cluster(new_session, 2) as (_, members):
            await create(members[0], "t")
            await members[1].configs.alter_incrementally(
                ("topic", "t"), [Alteration("retention.ms", AlterKind.SET, "5")]
            )
            assert members[1].image.config("topic", "t") == {"retention.ms": "5"}
            await members[0].configs.alter_incrementally(
                ("topic", "t"),
                [
                    Alteration("cleanup.policy", AlterKind.SET, "compact"),
                    Alteration("retention.ms", AlterKind.DELETE, None),
                ],
            )
            await agree(members, lambda m: m.image.config("topic", "t") == {"cleanup.policy": "compact"})
            await members[0].configs.alter_incrementally(
                ("broker", ""), [Alteration("log.retention.ms", AlterKind.SET, "9")]
            )
            await agree(members, lambda m: m.settings["log.retention.ms"] == 9)

    asyncio.run(story())


def test_a_broker_that_is_down_does_not_block_the_name_of_a_deleted_topic(new_session: NewSession) -> None:
    async def story() -> None:
        async with cluster(new_session, 2) as (wire, members):
            await create(members[0], "t", 2, 2)
            await create(members[0], "u", 2, 2)
            await members[0].topics.delete(["u"], MINUTE_MS)
            assert await members[0].store.exists(znodes.topic_path("u")) is None
            await members[1].leave()
            await agree(members[:1], lambda m: 2 not in m.image.brokers)
            (gone,) = await members[0].topics.delete(["t"], MINUTE_MS)
            assert gone.error_code == ErrorCode.NONE and "t" not in members[0].image.topics
            assert await members[0].store.exists(znodes.topic_path("t")) is None
            (again,) = await members[0].topics.create([NewTopic("t", 1, 1)], MINUTE_MS)
            assert again.error_code == ErrorCode.NONE and again.topic_id != gone.topic_id
            assert await members[0].store.exists(znodes.tombstone_path(gone.topic_id)) is not None
            members[1] = await join(wire, new_session(), 2)
            async with asyncio.timeout(30):
                while await members[0].store.exists(znodes.tombstone_path(gone.topic_id)) is not None:
                    await asyncio.sleep(0.01)
            assert members[0].image.topics["t"].topic_id == again.topic_id

    asyncio.run(story())


def test_an_isr_change_counts_when_the_controller_has_recorded_it(new_session: NewSession) -> None:
    async def story() -> None:
        async with cluster(new_session, 2) as (_, members):
            await create(members[0], "t", 1, 2)
            topic = members[0].image.topics["t"]
            leader = members[topic.partitions[0].leader - 1]
            change = IsrChange(0, 0, 0, (IsrMember(leader.node_id, leader.broker_epoch),), topic_id=topic.topic_id)
            request = AlterPartitions(leader.node_id, leader.broker_epoch, (change,))
            answer = await active(members).controller.alter_partition(request)
            assert answer.changes[0].error_code == ErrorCode.NONE
            await agree(members, lambda m: m.image.topics["t"].partitions[0].isr == (leader.node_id,))
            stored = await leader.store.get(znodes.state_path("t", 0))
            assert stored.stat.version == 1 and leader.image.topics["t"].partitions[0].partition_epoch == 1

    asyncio.run(story())


def test_partitions_grow_and_replicas_move(new_session: NewSession) -> None:
    async def story() -> None:
        async with cluster(new_session, 2) as (_, members):
            await create(members[0], "t", 1, 1)
            (answer,) = await members[1].topics.add_partitions([MorePartitions("t", 3)], MINUTE_MS)
            assert answer.error_code == ErrorCode.NONE
            assert len(members[1].image.topics["t"].partitions) == 3
            here = members[0].image.topics["t"].partitions[0].leader
            there = 3 - here
            controller = active(members).controller
            answers = await controller.alter_reassignments(AlterReassignments({("t", 0): (there,)}))
            assert answers[("t", 0)].error_code == ErrorCode.NONE
            await agree(members, lambda m: m.image.topics["t"].partitions[0].adding == (there,))
            moving = members[0].image.topics["t"].partitions[0]
            both = (
                IsrMember(here, members[here - 1].broker_epoch),
                IsrMember(there, members[there - 1].broker_epoch),
            )
            change = IsrChange(0, moving.leader_epoch, moving.partition_epoch, both, topic="t")
            request = AlterPartitions(here, members[here - 1].broker_epoch, (change,))
            result = await controller.alter_partition(request)
            assert result.changes[0].error_code == ErrorCode.NEW_LEADER_ELECTED
            await agree(members, lambda m: m.image.topics["t"].partitions[0].replicas == (there,))

    asyncio.run(story())


def test_controlled_shutdown_moves_leaders_before_the_broker_goes(new_session: NewSession) -> None:
    async def story() -> None:
        async with cluster(new_session, 3) as (_, members):
            await create(members[0], "t", 6, 3)
            answer = await members[0].controller.controlled_shutdown(2, members[1].broker_epoch)
            assert answer.remaining == ()
            await agree(members, lambda m: all(p.leader != 2 for p in m.image.topics["t"].partitions.values()))
            assert 2 in members[0].image.brokers and members[0].image.brokers[2].shutting_down

    asyncio.run(story())


class HurryingClock:
    """An hour passes between two looks."""

    def __init__(self) -> None:
        self._hours = 0

    def now_ms(self) -> int:
        return self._hours * 3_600_000

    def monotonic(self) -> float:
        self._hours += 1
        return self._hours * 3600.0


def test_two_brokers_with_one_id(new_session: NewSession) -> None:
    async def story() -> None:
        async with cluster(new_session, 1) as (wire, members):
            twin = Member(members[0].settings, new_session(), HurryingClock())
            twin.wire = wire
            await twin.join()
            with pytest.raises(BrokerIdInUse, match=r"own broker\.id"):
                await twin._register_once()
            await twin.store.close()
            assert await members[0].store.exists(znodes.broker_path(1)) is not None

    asyncio.run(story())


def test_producer_ids_never_repeat(new_session: NewSession) -> None:
    async def story() -> None:
        async with cluster(new_session, 2) as (_, members):
            drawn = await asyncio.gather(*(m.producer_ids.next() for m in members * 700))
            assert len(set(drawn)) == 1400

    asyncio.run(story())


def test_brokers_get_ids_when_they_have_none(new_session: NewSession) -> None:
    async def story() -> None:
        async with cluster(new_session, 1) as (wire, members):
            newcomer = await join(wire, new_session(), -1)
            assert newcomer.node_id == 1001
            await agree(members, lambda m: 1001 in m.image.brokers)
            await newcomer.leave()

    asyncio.run(story())


def test_a_session_that_expires_is_begun_anew_and_the_broker_registers_again() -> None:
    async def story() -> None:
        from penstock.store.embedded import EmbeddedDatabase

        database = EmbeddedDatabase()
        async with cluster(lambda: EmbeddedStore(database), 3) as (_, members):
            await create(members[0], "t", 3, 3)
            first_epoch = members[0].broker_epoch
            assert isinstance(members[0].store, EmbeddedStore)
            await members[0].store.expire()
            await eventually(lambda: members[0].broker_epoch > first_epoch)
            await agree(members, lambda m: m.image.controller_epoch == 2 and len(m.image.brokers) == 3)
            await agree(members, lambda m: all(p.leader != 1 for p in m.image.topics["t"].partitions.values()))
            await agree(members, lambda m: all(p.leader != NO_LEADER for p in m.image.topics["t"].partitions.values()))
            await create(members[0], "u", 1, 3)

    asyncio.run(story())


def test_failed_log_directories_are_told_to_the_controller(new_session: NewSession) -> None:
    async def story() -> None:
        async with cluster(new_session, 2) as (_, members):
            await create(members[0], "t", 1, 2)
            failing = members[0].image.topics["t"].partitions[0].leader
            await members[failing - 1].report_failed_replicas([("t", 0)])
            await agree(members, lambda m: m.image.topics["t"].partitions[0].offline == (failing,))
            assert members[0].image.topics["t"].partitions[0].leader == 3 - failing
            async with asyncio.timeout(30):
                while await members[0].store.children(znodes.LOG_DIR_EVENTS):
                    await asyncio.sleep(0.01)

    asyncio.run(story())


def test_a_new_controller_is_told_again_about_failed_log_directories(new_session: NewSession) -> None:
    async def story() -> None:
        async with cluster(new_session, 3) as (_, members):
            await create(members[0], "t", 1, 3)
            await members[1].report_failed_replicas([("t", 0)])
            await agree(members, lambda m: m.image.topics["t"].partitions[0].offline == (2,))
            await members[0].store.delete(znodes.CONTROLLER)
            await agree(members, lambda m: m.image.controller_epoch >= 2)
            await agree(members, lambda m: m.image.topics["t"].partitions[0].offline == (2,))
            assert members[0].image.topics["t"].partitions[0].leader in (1, 3)

    asyncio.run(story())


def test_brokers_of_two_releases_run_side_by_side(new_session: NewSession) -> None:
    """A rolling upgrade: the older broker reads only format 0 of the image; each in turn is the controller."""

    async def story() -> None:
        async with cluster(new_session, 1) as (wire, members):
            members.append(await join(wire, new_session(), 2, features={IMAGE_FEATURE: (0, 0)}))
            await create(members[1], "before", 2, 2)
            await agree(members, lambda m: "before" in m.image.topics)
            assert wire.formats == {1: FORMAT, 2: 0}
            await members[0].leave()
            await agree(members[1:], lambda m: m.image.controller_id == 2 and 1 not in m.image.brokers)
            members[0] = await join(wire, new_session(), 1)
            await members[1].leave()
            await agree(members[:1], lambda m: m.image.controller_id == 1 and 2 not in m.image.brokers)
            members[1] = await join(wire, new_session(), 2)
            await create(members[1], "after", 2, 2)
            await agree(members, lambda m: {"before", "after"} <= m.image.topics.keys())
            assert wire.formats == {1: FORMAT, 2: FORMAT}

    asyncio.run(story())


def test_old_tools_ask_through_the_tree(new_session: NewSession) -> None:
    async def story() -> None:
        async with cluster(new_session, 2) as (_, members):
            await create(members[0], "t", 1, 1)
            here = members[0].image.topics["t"].partitions[0].leader
            wish = {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [here, 3 - here]}]}
            await members[1].store.create(znodes.REASSIGN_PARTITIONS, znodes.dump(wish))
            await agree(members, lambda m: m.image.topics["t"].partitions[0].adding == (3 - here,))
            await members[1].store.create(znodes.PREFERRED_ELECTION, znodes.encode_partition_list([("t", 0)]))
            async with asyncio.timeout(30):
                while await members[0].store.exists(znodes.PREFERRED_ELECTION) is not None:
                    await asyncio.sleep(0.01)

    asyncio.run(story())
