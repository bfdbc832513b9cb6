"""Rules of the controller that a good day never asks for: each of these stories kills a wrong rule that all others let
live."""

from __future__ import annotations

from penstock.cluster.events import AlterReassignments, ControlledShutdown, DeletionsRequested, ImageAcknowledged
from penstock.cluster.image import NO_LEADER
from tests.cluster.test_controller_stories import ask_isr
from tests.cluster.world import World


def test_a_broker_that_is_about_to_stop_does_not_lead_what_is_moved_to_it() -> None:
    world = World(1, 2)
    world.create_topic("t", (1,))
    world.happen(ControlledShutdown(1, world.epochs[1]))
    assert world.partition("t").leader == 1, "there is nobody else"
    world.happen(AlterReassignments({("t", 0): (1, 2)}, True))
    ask_isr(world, "t", 1, (1, 2))
    assert not world.partition("t").is_reassigning
    assert world.partition("t").leader == 2


def test_of_two_eligible_ones_that_come_back_at_once_only_the_leader_is_in_sync() -> None:
    """The other one may lack what this one wrote alone, or have what it never committed."""
    world = World(1, 2, 3)
    world.create_topic("t", (1, 2, 3), configs={"min.insync.replicas": "3"})
    for broker_id in (1, 2, 3):
        world.happen(ControlledShutdown(broker_id, world.epochs[broker_id]))
        world.brokers_down(broker_id)
    assert world.partition("t").leader == NO_LEADER
    world.brokers_up(1, 2, after="clean stop")
    partition = world.partition("t")
    assert (partition.leader, partition.isr) == (1, (1,))


def test_after_an_unclean_election_only_the_leader_is_in_sync() -> None:
    world = World(1, 2, 3)
    world.create_topic("t", (3, 1, 2), configs={"unclean.leader.election.enable": "true"})
    ask_isr(world, "t", 3, (3,))
    world.brokers_down(1, 2)
    world.brokers_down(3)
    world.brokers_up(1, 2)
    partition = world.partition("t")
    assert partition.leader == 1
    assert partition.isr == (1,), "2 may have other records"


def test_who_was_eligible_under_another_min_isr_is_not_any_more() -> None:
    world = World(1, 2, 3)
    world.create_topic("t", (1, 2, 3), configs={"min.insync.replicas": "3"})
    world.brokers_down(2)
    world.brokers_down(3)
    assert world.partition("t").eligible == (2, 3)
    world.configure("topic", "t", min_insync_replicas="2")
    partition = world.partition("t")
    assert (partition.isr, partition.eligible) == ((1,), ()), "with 1 alone nothing was committed, but with 2 it may be"


def test_a_deletion_is_over_when_its_holders_have_heard_of_it() -> None:
    world = World(1, 2)
    topic_id = world.create_topic("t", (1, 2))
    before = world.state.image.version
    world.happen(DeletionsRequested(("t",)))
    for broker_id in (1, 2):
        world.happen(ImageAcknowledged(broker_id, world.epochs[broker_id], before))
    assert topic_id in world.state.deletions
    for broker_id in (1, 2):
        world.happen(ImageAcknowledged(broker_id, world.epochs[broker_id], world.state.image.version))
    assert topic_id not in world.state.deletions
