"""Faults of disks: full, slow, lost with all that was on them, and what a power loss does to unsynced pages."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

from penstock.log.checkpoints import RECOVERY_POINTS, read_offsets
from penstock.log.log_directory import accept_loss
from penstock.protocol.batch import BatchHeader
from penstock.testing.chaos.damage import Damage
from penstock.testing.chaos.hosts import BALLAST, BrokerHost, Hosts
from penstock.testing.chaos.process_faults import Say, some_broker

SLOW_CALL_MS = (5, 40, 200)


def fill(hosts: Hosts, dice: random.Random, say: Say) -> Damage:
    """Only broker 3 has a small disk of its own."""
    ballast = hosts.brokers[3].data / BALLAST
    say("  the disk of broker 3 is full")
    try:
        with ballast.open("wb") as file:
            while True:
                os.write(file.fileno(), bytes(1024 * 1024))
    except OSError:
        pass
    return Damage(lambda: ballast.unlink(missing_ok=True), brokers=frozenset({3}))


def slow_down(hosts: Hosts, dice: random.Random, say: Say) -> Damage:
    broker = hosts.brokers[some_broker(hosts, dice)]
    delay_ms = dice.choice(SLOW_CALL_MS)
    say(f"  each write and sync of broker {broker.number} takes {delay_ms} ms longer")
    broker.slow_disk.write_text(str(delay_ms))
    return Damage(lambda: broker.slow_disk.unlink(missing_ok=True), brokers=frozenset({broker.number}))


def lose(hosts: Hosts, dice: random.Random, say: Say) -> Damage:
    """The disk is replaced by an empty one, and the operator says so."""
    broker = hosts.brokers[some_broker(hosts, dice)]
    if not hosts.in_sync():
        say("  left out: somebody else still lacks what this disk holds")
        return Damage(lambda: None, is_over=True)
    say(f"  broker {broker.number} is killed and loses its disk")
    broker.kill()
    for entry in broker.data.iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    accept_loss(broker.data)
    return _back(broker)


def lose_power(hosts: Hosts, dice: random.Random, say: Say) -> Damage:
    """What was not synced is cut off, filled with zeros, or has a wrong byte in it."""
    broker = hosts.brokers[some_broker(hosts, dice)]
    if not hosts.in_sync():
        say("  left out: somebody else still lacks what this host may lose")
        return Damage(lambda: None, is_over=True)
    broker.kill()
    touched = 0
    recovery_points = read_offsets(broker.data / RECOVERY_POINTS)
    for folder in sorted(path for path in broker.data.iterdir() if path.is_dir()):
        topic, _, index = folder.name.rpartition("-")
        synced_offset = recovery_points.get((topic, int(index)), 0) if index.isdigit() else 0
        for segment in sorted(folder.glob("*.log")):
            touched += spoil(segment, synced_bytes(segment, synced_offset), dice)
    say(f"  broker {broker.number} loses power: {touched} segments were not synced whole")
    return _back(broker)


def _back(broker: BrokerHost) -> Damage:
    def heal() -> None:
        broker.start()
        broker.wait_until_ready()

    return Damage(heal, brokers=frozenset({broker.number}))


def synced_bytes(segment: Path, synced_offset: int) -> int:
    """How far into the segment everything was synced."""
    data = segment.read_bytes()
    position = 0
    while position + 61 <= len(data):
        header = BatchHeader.parse(data[position : position + 61])
        if header.base_offset >= synced_offset:
            break
        position += header.size
    return min(position, len(data))


def spoil(segment: Path, synced_bytes: int, dice: random.Random) -> bool:
    size = segment.stat().st_size
    if size <= synced_bytes:
        return False
    position = dice.randrange(synced_bytes, size)
    with segment.open("r+b") as file:
        match dice.choice(("cut", "zeros", "a wrong byte", "kept")):
            case "cut":
                file.truncate(position)
            case "zeros":
                file.seek(position)
                file.write(bytes(size - position))
            case "a wrong byte":
                file.seek(position)
                byte = file.read(1)[0]
                file.seek(position)
                file.write(bytes([byte ^ (1 << dice.randrange(8))]))
            case _:
                return False
    return True
