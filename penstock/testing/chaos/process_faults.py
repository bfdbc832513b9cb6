"""Faults of processes: killed, standing still, restarted. Each takes the hosts, breaks something and says what."""

from __future__ import annotations

import random
import signal
import socket
from collections.abc import Callable

from penstock.testing.chaos.damage import Damage
from penstock.testing.chaos.hosts import READY_SECONDS, Hosts

Say = Callable[[str], None]


def some_broker(hosts: Hosts, dice: random.Random) -> int:
    return dice.choice(sorted(hosts.brokers))


def kill_broker(hosts: Hosts, dice: random.Random, say: Say) -> Damage:
    return _kill(hosts, [some_broker(hosts, dice)], say)


def kill_two(hosts: Hosts, dice: random.Random, say: Say) -> Damage:
    return _kill(hosts, dice.sample(sorted(hosts.brokers), 2), say)


def kill_controller(hosts: Hosts, dice: random.Random, say: Say) -> Damage:
    return _kill(hosts, [hosts.controller() or some_broker(hosts, dice)], say)


def _kill(hosts: Hosts, victims: list[int], say: Say) -> Damage:
    say(f"  killed: {victims}")
    for number in victims:
        hosts.brokers[number].kill()

    def heal() -> None:
        for number in victims:
            hosts.brokers[number].start()
        for number in victims:
            hosts.brokers[number].wait_until_ready()

    return Damage(heal, brokers=frozenset(victims))


def freeze_broker(hosts: Hosts, dice: random.Random, say: Say) -> Damage:
    return _freeze(hosts, some_broker(hosts, dice), say)


def freeze_controller(hosts: Hosts, dice: random.Random, say: Say) -> Damage:
    return _freeze(hosts, hosts.controller() or some_broker(hosts, dice), say)


def _freeze(hosts: Hosts, number: int, say: Say) -> Damage:
    say(f"  broker {number} stands still")
    broker = hosts.brokers[number]
    broker.signal(signal.SIGSTOP)
    return Damage(lambda: broker.signal(signal.SIGCONT), brokers=frozenset({number}))


def kill_zookeeper_leader(hosts: Hosts, dice: random.Random, say: Say) -> Damage:
    leader = zookeeper_leader(hosts)
    say(f"  ZooKeeper {leader} is killed")
    server = hosts.zookeepers[leader]
    server.stop(kill=True)

    def heal() -> None:
        server.start(wait=False)
        server.wait_until_ready(READY_SECONDS)

    return Damage(heal, zookeepers=frozenset({leader}))


def freeze_zookeeper_leader(hosts: Hosts, dice: random.Random, say: Say) -> Damage:
    return _freeze_zookeepers(hosts, [zookeeper_leader(hosts)], say)


def freeze_all_zookeepers(hosts: Hosts, dice: random.Random, say: Say) -> Damage:
    return _freeze_zookeepers(hosts, sorted(hosts.zookeepers), say)


def _freeze_zookeepers(hosts: Hosts, numbers: list[int], say: Say) -> Damage:
    say(f"  ZooKeeper servers {numbers} stand still")
    for number in numbers:
        hosts.zookeepers[number].signal(signal.SIGSTOP)

    def heal() -> None:
        for number in numbers:
            hosts.zookeepers[number].signal(signal.SIGCONT)

    return Damage(heal, zookeepers=frozenset(numbers))


def zookeeper_leader(hosts: Hosts) -> int:
    return next((number for number in sorted(hosts.zookeepers) if _leads(hosts, number)), 1)


def _leads(hosts: Hosts, number: int) -> bool:
    server = hosts.zookeepers[number]
    try:
        with socket.create_connection((server.host, server.port), timeout=1) as connection:
            connection.sendall(b"srvr")
            answer = b""
            while chunk := connection.recv(4096):
                answer += chunk
    except OSError:
        return False
    return b"Mode: leader" in answer


def rolling_restart(hosts: Hosts, dice: random.Random, say: Say) -> Damage:
    for broker in hosts.brokers.values():
        if not broker.stop():
            say(f"  broker {broker.number} did not stop in peace")
        broker.start()
        broker.wait_until_ready()
    return Damage(lambda: None, brokers=frozenset({1}), is_over=True)
