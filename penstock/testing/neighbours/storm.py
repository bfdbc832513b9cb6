"""Apache Storm: its Kafka spout and bolt in a local cluster, at least once as they promise, killed in the middle."""

from __future__ import annotations

from penstock.testing import peers
from penstock.testing.neighbours.harness import CLIENT, Verdict, World, compiled, judge_numbers, missing
from penstock.testing.peers import Artifact

STORM = "2.8.1"
ARTIFACTS = (
    *(Artifact("org.apache.storm", name, STORM) for name in ("storm-server", "storm-kafka-client")),
    Artifact("org.apache.kafka", "kafka-clients", "3.9.2"),  # the user brings it: the spout names none
)
GROUP = "storm"
# Its serializer and its local ZooKeeper look into the JDK.
OPENS = ("java.base/java.util", "java.base/java.lang", "java.base/java.nio", "java.base/sun.nio.ch")
KILLS = 2


def run(world: World) -> Verdict:
    jars = peers.jars(f"storm-{STORM}", ARTIFACTS)
    classpath = compiled("StormCopy.java", jars, world.folder)
    world.create("storm-in", "storm-out")
    command = peers.java_command(
        classpath, "StormCopy", world.bootstrap, "storm-in", "storm-out", GROUP, heap="512m", opens=OPENS
    )
    child = world.run(command, "storm")
    chunk = world.records // (KILLS + 1)
    for number in range(KILLS + 1):
        seen = world.ended("storm-out")
        world.feed("storm-in", number * chunk, world.records if number == KILLS else (number + 1) * chunk)
        world.until(lambda seen=seen: world.ended("storm-out") > seen, "Storm copies on", [(child, "storm")])  # type: ignore[misc]
        if number < KILLS:
            world.kill(child, "Storm")
            child.start()
    world.until(
        lambda: missing((int(r.value) for r in world.read("storm-out")), world.records) == 0,
        "Storm has copied everything",
        [(child, "storm")],
    )
    world.until(lambda: _committed(world) >= world.records, "the spout has committed everything", [(child, "storm")])
    child.kill()
    found = world.read("storm-out")
    again = len(found) - len({record.value for record in found})
    return Verdict(
        "every record at least once, the spout's group committed up to the end",
        judge_numbers(found, world.records, once=False, ordered=False),
        f"{world.records:,} records, {again} of them again after a kill",
    )


def _committed(world: World) -> int:
    from confluent_kafka import Consumer, TopicPartition

    reader = Consumer({"bootstrap.servers": world.bootstrap, "group.id": GROUP, **CLIENT})
    try:
        places = reader.committed([TopicPartition("storm-in", partition) for partition in range(2)], 30)
        return sum(max(0, place.offset) for place in places)
    finally:
        reader.close()
