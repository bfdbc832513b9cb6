"""Faults of the network between the hosts: cut both ways or one way, everything or only what brokers say."""

from __future__ import annotations

import random

from penstock.testing.chaos.damage import Damage
from penstock.testing.chaos.hosts import Hosts
from penstock.testing.chaos.process_faults import Say, some_broker


def cut(hosts: Hosts, dice: random.Random, say: Say) -> Damage:
    one, other = dice.sample(sorted(hosts.brokers), 2)
    say(f"  hosts {one} and {other} are cut")
    hosts.network.cut(one, other)
    return Damage(hosts.network.heal, cuts=frozenset({frozenset({one, other})}))


def cut_one_way(hosts: Hosts, dice: random.Random, say: Say) -> Damage:
    here, there = dice.sample(sorted(hosts.brokers), 2)
    say(f"  nothing gets from host {here} to host {there}")
    hosts.network.cut_one_way(here, there)
    return Damage(hosts.network.heal, cuts=frozenset({frozenset({here, there})}))


def isolate(hosts: Hosts, dice: random.Random, say: Say) -> Damage:
    host = some_broker(hosts, dice)
    say(f"  host {host} is isolated")
    hosts.network.isolate(host)
    return Damage(hosts.network.heal, brokers=frozenset({host}), zookeepers=frozenset({host}))


def cut_from_controller(hosts: Hosts, dice: random.Random, say: Say) -> Damage:
    """Both keep ZooKeeper, and whoever else they speak with."""
    return _cut_from_controller(hosts, dice, say, both_ways=True)


def cut_one_way_from_controller(hosts: Hosts, dice: random.Random, say: Say) -> Damage:
    return _cut_from_controller(hosts, dice, say, both_ways=False)


def _cut_from_controller(hosts: Hosts, dice: random.Random, say: Say, both_ways: bool) -> Damage:
    controller = hosts.controller() or some_broker(hosts, dice)
    broker = dice.choice([number for number in sorted(hosts.brokers) if number != controller])
    ways = [(broker, controller), (controller, broker)]
    if not both_ways:
        ways = [dice.choice(ways)]
    for here, there in ways:
        say(f"  broker {here} does not reach broker {there}; ZooKeeper does not notice")
        hosts.network.cut_port(here, there, hosts.brokers[there].port)
    return Damage(hosts.network.heal, cuts=frozenset({frozenset({broker, controller})}))
