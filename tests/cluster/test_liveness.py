"""Whom the controller hears: silent brokers are fenced, a controller that misses too many steps aside."""

from __future__ import annotations

import asyncio
import socket

import pytest

from penstock.client.connection import Connection
from penstock.cluster import own_znodes
from penstock.cluster.channels import BrokerChannel, RemoteTransport
from penstock.cluster.controller import decide
from penstock.cluster.events import BrokersSilent, ImageAcknowledged
from penstock.cluster.image import NO_LEADER, BrokerRegistration, ImageDelta, MetadataImage
from penstock.cluster.liveness import Liveness, LivenessTimes, Verdict, judge
from penstock.cluster.topics import NewTopic
from penstock.protocol.errors import ErrorCode
from penstock.store.embedded import EmbeddedDatabase, EmbeddedStore
from tests.cluster.members import agree, cluster, eventually
from tests.cluster.test_controller_stories import ask_isr
from tests.cluster.world import World

QUICK = {"broker_heartbeat_interval_ms": "20", "broker_session_timeout_ms": "400"}


def brokers(*broker_ids: int, fenced: tuple[int, ...] = ()) -> dict[int, BrokerRegistration]:
    return {i: BrokerRegistration(i, 100 + i, {}, fenced=i in fenced) for i in broker_ids}


# --- who is silent ---


def test_a_new_registration_has_the_whole_time_before_it() -> None:
    liveness = Liveness(9.0, 0.0)
    others = brokers(2, 3)
    assert liveness.silent(others, 1.0) == {}
    for second in range(2, 10):
        liveness.heard(others[2], float(second))
        assert liveness.silent(others, float(second)) == {}
    liveness.heard(others[2], 11.0)
    assert liveness.silent(others, 11.0) == {3: 103}


def test_nobody_is_blamed_for_the_time_in_which_the_controller_stood_still() -> None:
    liveness = Liveness(9.0, 0.0)
    others = brokers(2)
    liveness.silent(others, 1.0)
    assert liveness.silent(others, 500.0) == {}
    assert liveness.silent(others, 504.0) == {}
    assert liveness.silent(others, 508.0) == {}
    assert liveness.silent(others, 510.0) == {2: 102}


@pytest.mark.parametrize(
    ("others", "silent", "missed_before", "verdict"),
    [
        (brokers(2, 3, 4, 5), (), (), Verdict.NOTHING),
        (brokers(2, 3, 4, 5), (2,), (), Verdict.FENCE),
        (brokers(2, 3, 4, 5), (2, 3), (), Verdict.STEP_ASIDE),
        (brokers(2, 3, 4, 5), (2, 3), (2, 3), Verdict.FENCE),
        (brokers(2, 3, 4, 5), (2, 3, 4), (2, 3, 4), Verdict.STEP_ASIDE),
        (brokers(2, 3), (2,), (), Verdict.STEP_ASIDE),
        (brokers(2, 3), (2,), (2,), Verdict.FENCE),
        (brokers(2, 3), (2,), (3,), Verdict.STEP_ASIDE),
        (brokers(2, 3), (2, 3), (2, 3), Verdict.STEP_ASIDE),
        (brokers(2), (2,), (2,), Verdict.STEP_ASIDE),
        (brokers(2, 3, fenced=(2,)), (2,), (), Verdict.NOTHING),
        ({}, (), (), Verdict.NOTHING),
    ],
)
def test_what_a_controller_does_about_silence(
    others: dict[int, BrokerRegistration], silent: tuple[int, ...], missed_before: tuple[int, ...], verdict: Verdict
) -> None:
    assert judge(others, {i: 100 + i for i in silent}, frozenset(missed_before)) is verdict


def test_a_broker_whose_host_says_that_nobody_listens_is_gone_without_doubt() -> None:
    assert judge(brokers(2, 3), {2: 102}, frozenset(), gone=[2]) is Verdict.FENCE
    assert judge(brokers(2, 3), {2: 102, 3: 103}, frozenset(), gone=[2, 3]) is Verdict.FENCE
    assert judge(brokers(2, 3), {2: 102, 3: 103}, frozenset(), gone=[2]) is Verdict.STEP_ASIDE
    liveness = Liveness(9.0, 0.0)
    broker = brokers(2)[2]
    liveness.unheard(broker, refused=True)
    assert liveness.is_gone(2, 102)
    liveness.unheard(broker, refused=False)
    assert not liveness.is_gone(2, 102), "now it is the way that is bad"
    liveness.unheard(broker, refused=True)
    liveness.heard(broker, 1.0)
    assert not liveness.is_gone(2, 102)


def test_the_note_counts_only_for_the_next_controller() -> None:
    note = own_znodes.encode_missed(7, {3, 2})
    assert own_znodes.decode_missed(note, 7) == {2, 3}
    assert own_znodes.decode_missed(note, 8) == frozenset()
    assert own_znodes.decode_missed(b"", 7) == own_znodes.decode_missed(b"[", 7) == frozenset()


# --- what fencing does ---


def test_a_silent_broker_loses_its_leaderships_and_keeps_its_registration() -> None:
    world = World(1, 2, 3)
    world.create_topic("t", (2, 1, 3), configs={"min.insync.replicas": "2"})
    world.happen(BrokersSilent({2: world.epochs[2]}))
    p = world.partition("t")
    assert (p.leader, p.isr) == (1, (1, 3))
    assert world.image.brokers[2].fenced
    assert ask_isr(world, "t", 1, (1, 3, 2)) == ErrorCode.INELIGIBLE_REPLICA
    assert ask_isr(world, "t", 2, (2,)) != ErrorCode.NONE, "it leads no longer"


def test_it_is_admitted_when_it_has_acknowledged_the_current_image() -> None:
    world = World(1, 2)
    world.create_topic("t", (2,))
    world.happen(BrokersSilent({2: world.epochs[2]}))
    assert (world.partition("t").leader, world.partition("t").eligible) == (NO_LEADER, (2,))
    world.happen(ImageAcknowledged(2, world.epochs[2], world.image.version - 1))
    assert world.image.brokers[2].fenced, "that was an older image"
    world.acknowledge(2)
    assert not world.image.brokers[2].fenced
    assert (world.partition("t").leader, world.partition("t").isr) == (2, (2,))


def test_another_life_of_a_silent_broker_is_not_fenced() -> None:
    world = World(1, 2, 3)
    epoch = world.epochs[2]
    world.brokers_up(2)
    world.happen(BrokersSilent({2: epoch}))
    assert not world.image.brokers[2].fenced
    world.happen(BrokersSilent({2: world.epochs[2]}))
    world.brokers_up(3)
    assert world.image.brokers[2].fenced, "others come and go: it is still silent"
    world.brokers_up(2)
    assert not world.image.brokers[2].fenced, "a new registration begins anew"


def test_a_new_controller_takes_nobody_for_silent_at_first() -> None:
    world = World(1, 2)
    world.happen(BrokersSilent({2: world.epochs[2]}))
    world.reload()
    assert not world.image.brokers[2].fenced
    assert decide(world.state, BrokersSilent({})).output.delta is None


# --- drivers ---


def test_a_broker_out_of_reach_is_fenced_and_admitted_again() -> None:
    async def story() -> None:
        database = EmbeddedDatabase()
        async with cluster(lambda: EmbeddedStore(database), 4, **QUICK) as (wire, members):
            one, *_, four = members
            assert one.controller.is_active
            wire.cut_ways.add((one.node_id, four.node_id))
            await agree(members[:3], lambda m: m.image.brokers[four.node_id].fenced)
            assert not four.image.brokers[four.node_id].fenced, "it knows nothing of it"
            assert four.images.controller_silence_s > 0
            wire.cut_ways.clear()
            await agree(members, lambda m: not m.image.brokers[four.node_id].fenced)
            assert one.controller.is_active

    asyncio.run(story())


def test_a_broker_that_hears_but_cannot_ask_is_fenced_too() -> None:
    """The controller reaches it, but its ISR changes do not reach the controller."""

    async def story() -> None:
        database = EmbeddedDatabase()
        async with cluster(lambda: EmbeddedStore(database), 4, **QUICK) as (_, members):
            four = members[3]
            four.images.reaches_controller = lambda: False
            await agree(members, lambda m: m.image.brokers[four.node_id].fenced)
            four.images.reaches_controller = lambda: True
            await agree(members, lambda m: not m.image.brokers[four.node_id].fenced)

    asyncio.run(story())


def test_a_heartbeat_tells_a_closed_port_from_a_bad_way() -> None:
    async def story() -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]

        async def dial(registration: BrokerRegistration, client_id: str) -> Connection:
            return await Connection.open("127.0.0.1", port, client_id)

        told: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        broker = brokers(2)[2]
        channel = BrokerChannel(
            broker,
            RemoteTransport(broker, dial),
            MetadataImage,
            lambda broker, answer: None,
            lambda broker, code: None,
            RemoteTransport(broker, dial),
            LivenessTimes(0.01, 60.0),
            lambda broker, refused: None if told.done() else told.set_result(refused),
        )
        assert await told is True
        await channel.close()

    asyncio.run(story())


def test_a_controller_that_is_cut_off_leaves_its_place_to_one_that_is_not() -> None:
    async def story() -> None:
        database = EmbeddedDatabase()
        async with cluster(lambda: EmbeddedStore(database), 3, **QUICK) as (wire, members):
            one, two, three = members
            assert one.controller.is_active
            wire.cut_ways |= {(one.node_id, two.node_id), (one.node_id, three.node_id)}
            await eventually(lambda: two.controller.is_active or three.controller.is_active)
            await agree(members, lambda m: m.image.controller_id != one.node_id)
            assert not any(b.fenced for b in two.image.brokers.values()), "the new one hears everybody"

    asyncio.run(story())


def test_two_controllers_that_miss_the_same_broker_are_right_about_it() -> None:
    """Nobody reaches broker 3, but it keeps its session: the first controller steps aside, the next one fences it."""

    async def story() -> None:
        database = EmbeddedDatabase()
        async with cluster(lambda: EmbeddedStore(database), 3, **QUICK) as (wire, members):
            one, two, three = members
            wire.cut_ways |= {(a, b) for a in (1, 2, 3) for b in (1, 2, 3) if a != b and 3 in (a, b)}
            await agree([one, two], lambda m: m.image.brokers[three.node_id].fenced)
            assert one.controller.is_active or two.controller.is_active

    asyncio.run(story())


def test_a_sign_of_life_acknowledges_nothing_of_a_controller_whose_image_was_not_taken_in() -> None:
    """Versions begin anew with each controller: where a broker stands in the last one's count says nothing here."""

    async def story() -> None:
        database = EmbeddedDatabase()
        async with cluster(lambda: EmbeddedStore(database), 3, **QUICK) as (_, members):
            one, two, three = members
            for name in ("a", "b", "c", "d", "e"):
                await one.topics.create([NewTopic(name, assignments={0: (1, 2)})], 60_000)
            await agree(members, lambda m: "e" in m.image.topics)
            gate, beats = asyncio.Event(), 0

            async def slowly(delta: ImageDelta, image: MetadataImage) -> None:
                if "late" in image.topics:
                    await gate.wait()

            def beat() -> bool:
                nonlocal beats
                beats += 1
                return True

            three.images.subscribe(slowly)
            await one.topics.create([NewTopic("late", assignments={0: (3, 2)})], 60_000)
            await one.leave()
            members.remove(one)
            await eventually(lambda: two.controller.is_active or three.controller.is_active)
            leader = two if two.controller.is_active else three
            three.images.reaches_controller = beat
            await eventually(lambda: beats > 3)
            partition = leader.controller.state.image.partition("late", 0)
            assert partition is not None
            assert 3 in (partition.new or ()), "broker 3 has not heard of it yet, so it has not made it"
            gate.set()
            await eventually(lambda: leader.controller.state.image.partition("late", 0).new == ())  # type: ignore[union-attr]

    asyncio.run(story())


def test_who_stepped_aside_stands_again_as_soon_as_those_it_missed_have_no_session_any_more() -> None:
    """A host without power answers nobody. Nobody else can take over, and nothing is in doubt once its session ends."""

    async def story() -> None:
        database = EmbeddedDatabase()
        slow = {**QUICK, "broker_session_timeout_ms": "20000"}
        async with cluster(lambda: EmbeddedStore(database), 2, **slow) as (wire, members):
            one, two = members
            wire.cut.add(two.node_id)
            one.controller._missed = {two.node_id: two.broker_epoch}  # as after the time-out
            waiting = two.controller._candidacy  # it does not run
            waiting._stands_again_s, waiting._missed = two.clock.monotonic() + 3600, {one.node_id: one.broker_epoch}
            one.controller._wake.set()
            await eventually(lambda: not one.controller.is_active)
            await two.leave()
            members.remove(two)
            await eventually(lambda: one.controller.is_active)

    asyncio.run(story())
