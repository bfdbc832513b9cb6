"""Eight consumers of all kinds read while topics are written, cut, compacted, forbidden, deleted and made anew.

Nobody sees a record of another topic, an aborted one or one twice, misses one, or waits although there is something.
"""

from __future__ import annotations

import random
import time

import pytest
from readers_rules import Reader
from readers_world import SETTINGS, World

import penstock

STEPS = 600
READERS = 8


def step(world: World, readers: list[Reader]) -> None:
    what = world.draw.random()
    if what < 0.25:
        world.produce()
    elif what < 0.33:
        world.transact()
    elif what < 0.345:
        world.delete_records()
    elif what < 0.35:
        world.make_anew()
    elif what < 0.358:
        world.forbid_or_allow()
    elif what < 0.362:
        world.limit_or_free()
    elif what < 0.37:
        world.draw.choice(readers).hang_up()
    elif what < 0.385:
        for reader in readers:
            reader.look_whether_it_hangs()
    else:
        reader = world.draw.choice(readers)
        if not reader.waits:
            reader.ask()
            if world.draw.random() < 0.5:
                reader.answered(0.005)
    for reader in readers:
        if reader.waits and reader.answered():
            reader.take()


def read_to_the_end(reader: Reader) -> None:
    """A poll that waits gets a record first; from then on nothing is waited for."""
    world = reader.world
    if reader.waits:
        name, index = reader.places[0]
        world.produce_to(world.lives[name], index)
    quiet = 0
    deadline = time.monotonic() + 60
    while quiet < 3:
        assert time.monotonic() < deadline, f"{reader.positions} never ends"
        if not reader.waits:
            reader.ask(max_wait_ms=0)
        reader.insist_on_an_answer()
        if reader.waits:
            reader.take()
        quiet = 0 if reader.moved else quiet + 1
    ends = {place: world.log_end(*place) for place in reader.places}
    if reader.positions != ends:
        world.differences.append(f"version {reader.version}: reads to {reader.positions} of {ends}")


@pytest.mark.parametrize("seed", range(2))
def test_what_consumers_of_all_kinds_see(seed: int) -> None:
    with penstock.Broker(num_partitions=1, settings=SETTINGS) as broker:
        world = World(broker, random.Random(seed))
        readers = [Reader(world) for _ in range(READERS)]
        for _ in range(STEPS):
            step(world, readers)
            assert world.differences == []
        for writer in world.writers:
            writer.finish(commit=True)
        if world.limited:
            world.limit_or_free()
        if world.forbidden is not None:
            world.forbid_or_allow()
        for reader in readers:
            read_to_the_end(reader)
            reader.client.socket.close()
        world.close()
    assert world.differences == []
