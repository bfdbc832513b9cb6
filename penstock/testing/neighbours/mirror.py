"""MirrorMaker 2 between two Penstock clusters, exactly once: records, settings of topics, progress of groups."""

from __future__ import annotations

from typing import Any

from penstock.testing import peers
from penstock.testing.neighbours.harness import CLIENT, Verdict, World, judge_numbers, write_properties
from penstock.testing.ports import free_port

ARTIFACTS = (*peers.KAFKA_CONNECT, peers.Artifact("org.apache.kafka", "connect-mirror", peers.KAFKA_VERSION))
KILLS = 2
GROUP = "billing"
RETENTION_MS = "9876543210000"  # to be found on the other side, and longer than the records are old


def run(world: World) -> Verdict:
    jars = peers.jars(f"kafka-mirror-{peers.KAFKA_VERSION}", ARTIFACTS)
    with World(world.folder / "far", 1, world.records, 0) as far:
        world.create("orders", settings={"retention.ms": RETENTION_MS})
        settings = _settings(world, far)
        properties = write_properties(world.folder / "mirror.properties", settings)
        command = peers.java_command(
            jars, "org.apache.kafka.connect.mirror.MirrorMaker", properties, log="warn", heap="512m"
        )
        chunk = world.records // (KILLS + 1)
        world.feed("orders", 0, chunk)
        mirror = world.run(command, "mirror")
        for number in range(KILLS + 1):
            end = world.records if number == KILLS else (number + 1) * chunk
            if number:
                seen = far.ended("near.orders")
                world.feed("orders", number * chunk, end)
                world.kill(mirror, "MirrorMaker")
                mirror.start()
            else:
                seen = 0
            far_moves = lambda seen=seen: _has(far, "near.orders") and far.ended("near.orders") > seen  # noqa: E731
            world.until(far_moves, "the mirror copies on", [(mirror, "mirror")])
        world.until(
            lambda: len({record.value for record in far.read("near.orders")}) >= world.records,
            "everything is mirrored",
            [(mirror, "mirror")],
        )
        problems = _judge_records(world, far)
        consumed = _consume(world, world.records // 2)
        world.until(lambda: bool(_committed(far)), "the group is known over there", [(mirror, "mirror")])
        problems += _judge_group(far, consumed)
        mirror.stop()
        if _retention(far) != RETENTION_MS:
            problems.append("the topic's settings were not mirrored")
    return Verdict(
        "every record once, in order, with key, headers and time; the topic's settings; no group skips a record",
        problems,
        f"{world.records:,} records",
    )


def _settings(near: World, far: World) -> dict[str, str]:
    return {
        "clusters": "near, far",
        "near.bootstrap.servers": near.bootstrap,
        "far.bootstrap.servers": far.bootstrap,
        "near->far.enabled": "true",
        "near->far.topics": "orders",
        "far->near.enabled": "false",
        "near->far.groups": GROUP,
        "replication.factor": "1",
        **{f"{name}.topic.replication.factor": "1" for name in ("checkpoints", "heartbeats", "offset-syncs")},
        **{f"{name}.storage.replication.factor": "1" for name in ("config", "offset", "status")},
        "far.exactly.once.source.support": "enabled",  # of the workers that write there; without a name it says nothing
        "dedicated.mode.enable.internal.rest": "true",
        "listeners": f"http://127.0.0.1:{free_port()}",
        "near.consumer.isolation.level": "read_committed",
        "sync.topic.acls.enabled": "false",
        "sync.topic.configs.interval.seconds": "2",
        "refresh.topics.interval.seconds": "2",
        "refresh.groups.interval.seconds": "2",
        "emit.checkpoints.interval.seconds": "1",
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": "1",
        "offset.lag.max": "0",
        "far.scheduled.rebalance.max.delay.ms": "0",
        "far.session.timeout.ms": "6000",
        "far.heartbeat.interval.ms": "1000",
    }


def _judge_records(near: World, far: World) -> list[str]:
    """Numbers first, then everything that belongs to a record, compared with the original."""
    copies, originals = far.read("near.orders"), near.read("orders")
    problems = judge_numbers(copies, near.records)
    sight = [[(r.partition, r.key, r.value, r.timestamp, r.headers) for r in side] for side in (originals, copies)]
    if not problems and sight[0] != sight[1]:
        first = next(pair for pair in zip(*sight, strict=True) if pair[0] != pair[1])
        problems.append(f"a copy differs: {first}")
    return problems


def _consume(world: World, count: int) -> set[str]:
    """A group reads so much over here, commits and goes; what it has read."""
    from confluent_kafka import Consumer

    reader = Consumer(
        {"bootstrap.servers": world.bootstrap, "group.id": GROUP, "auto.offset.reset": "earliest",
         "enable.auto.commit": False, **CLIENT}
    )  # fmt: skip
    reader.subscribe(["orders"])
    read: set[str] = set()
    while len(read) < count:
        for message in reader.consume(500, 1.0):
            if message.error() is None:
                read.add(message.value().decode())
    reader.commit(asynchronous=False)
    reader.close()
    return read


def _committed(far: World) -> dict[int, int]:
    from confluent_kafka import Consumer, TopicPartition

    reader = Consumer({"bootstrap.servers": far.bootstrap, "group.id": GROUP, **CLIENT})
    try:
        asked = [TopicPartition("near.orders", partition) for partition in range(2)]
        return {one.partition: one.offset for one in reader.committed(asked, 30) if one.offset >= 0}
    finally:
        reader.close()


def _judge_group(far: World, consumed: set[str]) -> list[str]:
    """Whoever goes on over there may see records again, but must not miss one that was not read over here."""
    places = _committed(far)
    skipped = [
        r.value for r in far.read("near.orders") if r.offset < places.get(r.partition, 0) and r.value not in consumed
    ]
    return [f"the group would skip {len(skipped)} records, first {skipped[0]}"] if skipped else []


def _has(far: World, topic: str) -> bool:
    return topic in _admin(far).list_topics(timeout=30).topics


def _retention(far: World) -> str:
    from confluent_kafka.admin import ConfigResource

    asked = ConfigResource(ConfigResource.Type.TOPIC, "near.orders")
    admin = _admin(far)  # its answers end with it
    found: dict[str, Any] = admin.describe_configs([asked])[asked].result(30)
    return str(found["retention.ms"].value)


def _admin(far: World) -> Any:
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": far.bootstrap, **CLIENT})
