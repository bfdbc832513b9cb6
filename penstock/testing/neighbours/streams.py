"""Kafka Streams: its own smoke test (20,000 records through windows, joins, suppression), exactly once, with kills."""

from __future__ import annotations

import re
import time

from penstock.testing import peers
from penstock.testing.eos_chain import Process
from penstock.testing.neighbours.harness import Verdict, World, write_properties
from penstock.testing.peers import Artifact

# The smoke test lives in the tests of Kafka Streams, and makes its folders with what lives in those of the clients.
_TESTS = [
    Artifact("org.apache.kafka", name, peers.KAFKA_VERSION, False, "test")
    for name in ("kafka-streams", "kafka-clients")
]
ARTIFACTS = (*peers.KAFKA_STREAMS, *_TESTS)
MAIN = "org.apache.kafka.streams.tests.StreamsSmokeTest"
TOPICS = ("data", "echo", "max", "min", "min-suppressed", "min-raw", "dif", "sum", "sws-raw", "sws-suppressed")
MORE_TOPICS = ("cnt", "avg", "tagg", "fk")
CLIENTS = 2
RECORDS = 20_000  # of its driver
STRIKE_EVERY_SECONDS = (6.0, 14.0)
BROKER_EVERY = 3  # strikes


def run(world: World) -> Verdict:
    jars = peers.jars(f"kafka-streams-smoke-2-{peers.KAFKA_VERSION}", ARTIFACTS)
    world.create(*TOPICS, *MORE_TOPICS, partitions=5)
    clients = [world.run(_command(world, jars, "process", f"state-{n}"), f"client-{n}") for n in range(CLIENTS)]
    driver = world.run(_command(world, jars, "run", "driver"), "driver")
    next_strike = time.monotonic() + STRIKE_EVERY_SECONDS[1]
    deadline = time.monotonic() + 900
    while driver.is_running:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the smoke test does not end: {world.log('driver')[-2000:]}")
        if time.monotonic() > next_strike and 0 < _written(world) < RECORDS:
            _strike(world, clients)
            next_strike = time.monotonic() + world.random.uniform(*STRIKE_EVERY_SECONDS)
        for client in clients:
            client.keep_running()
        time.sleep(0.3)
    for client in clients:
        client.stop()
    return _verdict(world)


def _command(world: World, jars: object, what: str, state: str) -> list[str]:
    settings = {
        "bootstrap.servers": world.bootstrap,
        "processing.guarantee": "exactly_once_v2",
        "state.dir": str(world.folder / state),
        "replication.factor": str(world.copies),
        "commit.interval.ms": "200",
        "num.stream.threads": "2",
        "auto.offset.reset": "earliest",
        "consumer.session.timeout.ms": "6000",
        "producer.transaction.timeout.ms": "10000",
    }
    properties = write_properties(world.folder / f"{state}.properties", settings)
    return peers.java_command(f"{jars}/*", MAIN, properties, what, log="warn")


def _written(world: World) -> int:
    """How far the driver is by its own word. After its last record it judges, and nobody is killed any more."""
    told = re.findall(r"(\d+) records produced", world.log("driver"))
    return int(told[-1]) if told else 0


def _strike(world: World, clients: list[Process]) -> None:
    if sum(world.kills.values()) % BROKER_EVERY == BROKER_EVERY - 1:
        world.kill_a_broker()
        return
    world.kill(world.random.choice(clients), "Streams application")  # the loop starts it again


def _verdict(world: World) -> Verdict:
    told = world.log("driver")
    problems = []
    if "ALL-RECORDS-DELIVERED" not in told or not re.search(r"^SUCCESS$", told, re.MULTILINE):
        problems.append(f"Kafka's verifier says: {told[-1500:]}")
    if not world.kills["broker"] or not world.kills["Streams application"]:
        problems.append("nobody was killed: the run proves nothing about kills")
    echoed = re.findall(r"Echo records processed = (\d+)", told)
    figures = f"{int(echoed[-1]):,} records" if echoed else "no count of records"
    return Verdict("the verifier of Kafka's own smoke test finds every result, none twice", problems, figures)
