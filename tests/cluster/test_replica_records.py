"""What is on record about single replicas: new until their broker has made them, never begun anew afterwards."""

from __future__ import annotations

import uuid

from penstock.cluster import own_znodes, znodes
from penstock.cluster.events import AlterReassignments, ElectionKind, ElectLeaders, ImageAcknowledged, ReplicasFailed
from penstock.cluster.image import NO_LEADER
from tests.cluster.world import World


def fail(world: World, broker_id: int, *, given_up: bool = False) -> None:
    """The broker says that it does not find its replica of t-0."""
    lost = (("t", 0),)
    world.happen(
        ImageAcknowledged(broker_id, world.epochs[broker_id], world.image.version, lost, lost if given_up else ())
    )


def test_a_replica_is_new_until_its_broker_has_made_it() -> None:
    world = World(1, 2)
    world.create_topic("t", (1, 2))
    assert world.partition("t").new == (1, 2)
    version = world.image.version
    world.acknowledge(1)
    assert world.partition("t").new == (2,)
    assert world.image.version == version, "nobody needs to be told"
    world.reload()
    assert world.partition("t").new == (2,), "it is on record"
    world.acknowledge(2)
    world.reload()
    assert world.partition("t").new == ()
    assert not world.tree.children(znodes.REPLICA_NOTES), "and leaves no node behind"


def test_an_older_acknowledgement_makes_no_replica() -> None:
    world = World(1)
    before = world.image.version
    world.create_topic("t", (1,))
    world.happen(ImageAcknowledged(1, world.epochs[1], before))
    assert world.partition("t").new == (1,)


def test_a_replica_that_could_not_be_made_stays_new() -> None:
    world = World(1, 2)
    world.create_topic("t", (1, 2))
    fail(world, 1)
    p = world.partition("t")
    assert (p.new, p.offline, p.leader) == ((1, 2), (1,), 2)
    world.reload()
    world.brokers_up(1)
    world.acknowledge(1)
    p = world.partition("t")
    assert (p.new, p.offline) == ((2,), ())


def test_a_replica_that_has_no_folder_yet_stays_new_although_it_is_served() -> None:
    world = World(1, 2)
    world.create_topic("t", (1, 2))
    waiting = (("t", 0),)
    world.happen(ImageAcknowledged(1, world.epochs[1], world.image.version, unmade=waiting))
    p = world.partition("t")
    assert (p.new, p.offline, p.leader, p.isr) == ((1, 2), (), 1, (1, 2))
    world.reload()
    world.happen(ImageAcknowledged(1, world.epochs[1], world.image.version))
    assert world.partition("t").new == (2,)


def test_added_replicas_are_new_and_removed_ones_are_forgotten() -> None:
    world = World(1, 2, 3)
    world.create_topic("t", (1, 2))
    world.acknowledge(1, 2, 3)
    world.happen(AlterReassignments({("t", 0): (1, 3)}))
    assert world.partition("t").new == (3,)
    world.reload()
    assert world.partition("t").new == (3,)
    world.happen(AlterReassignments({("t", 0): None}))
    assert world.partition("t").new == ()


def test_a_topic_made_while_a_broker_is_away_is_new_to_it() -> None:
    world = World(1, 2)
    world.brokers_down(2)
    world.create_topic("t", (2, 1))
    world.acknowledge(1)
    world.reload()
    world.brokers_up(2)
    assert world.partition("t").new == (2,)


def test_the_notes_of_a_topic_say_nothing_about_the_next_one_of_its_name() -> None:
    world = World(1)
    world.create_topic("t", (1,))
    world.acknowledge(1)
    data = own_znodes.encode_replica_notes(uuid.uuid4(), {0: (1,)}, {0: (1,)})
    world._ensure(znodes.replica_notes_path("t"))
    world.tree.nodes[znodes.replica_notes_path("t")].data = data
    world.reload()
    assert (world.partition("t").new, world.partition("t").offline) == ((), ())


def test_a_lost_replica_is_begun_anew_only_with_the_operators_word() -> None:
    world = World(1, 2)
    world.create_topic("t", (1, 2))
    world.acknowledge(1, 2)
    fail(world, 1)
    assert (world.partition("t").isr, world.partition("t").new) == ((2,), ())
    fail(world, 1, given_up=True)
    p = world.partition("t")
    assert (p.leader, p.new, p.offline) == (2, (1,), ())
    world.acknowledge(1)
    assert world.partition("t").new == ()


def test_a_broker_hears_that_it_may_begin_anew_also_if_nothing_else_changes() -> None:
    world = World(1, 2)
    world.create_topic("t", (1, 2))
    world.acknowledge(1, 2)
    world.brokers_down(1)
    world.brokers_up(1)
    before, version = world.partition("t"), world.image.version
    assert (before.isr, before.offline) == ((2,), ()), "it is out of sync, and nobody knows why yet"
    fail(world, 1, given_up=True)
    assert world.partition("t").new == (1,)
    assert world.partition("t") != before and world.image.version == version + 1
    fail(world, 1, given_up=True)
    assert world.image.version == version + 1, "once is enough"


def test_nobody_is_cut_to_the_nothing_of_the_last_replica_in_sync() -> None:
    world = World(1, 2)
    world.create_topic("t", (1, 2))
    world.acknowledge(1, 2)
    world.brokers_down(2)
    world.brokers_up(2)
    assert (world.partition("t").leader, world.partition("t").isr) == (1, (1,))
    fail(world, 1, given_up=True)
    p = world.partition("t")
    assert (p.leader, p.offline, p.new) == (-1, (1,), ()), "broker 2 has the rest of the data"
    world.happen(ElectLeaders(ElectionKind.UNCLEAN, (("t", 0),)))
    assert world.partition("t").leader == 2
    fail(world, 1, given_up=True)
    assert world.partition("t").new == (1,)


def test_a_lone_replica_that_was_given_up_leads_again_in_a_new_epoch() -> None:
    world = World(1)
    world.create_topic("t", (1,))
    world.acknowledge(1)
    epoch = world.partition("t").leader_epoch
    world.happen(ReplicasFailed(1, (("t", 0),)))
    fail(world, 1, given_up=True)
    p = world.partition("t")
    assert (p.leader, p.new) == (1, (1,)) and p.leader_epoch > epoch


def test_a_topic_whose_disks_are_all_lost_begins_anew_by_two_words_of_the_operator() -> None:
    world = World(1, 2)
    world.create_topic("t", (1, 2))
    world.acknowledge(1, 2)
    fail(world, 1)
    fail(world, 2)
    fail(world, 2, given_up=True)
    assert world.partition("t").leader == NO_LEADER, "the disk of broker 1 may come back with its data"
    world.configure("topic", "t", unclean_leader_election_enable="true")
    fail(world, 2, given_up=True)
    assert (world.partition("t").leader, world.partition("t").isr) == (2, (2,))
    fail(world, 1, given_up=True)
    assert (world.partition("t").offline, world.partition("t").new) == ((), (1, 2))
