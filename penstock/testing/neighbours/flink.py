"""Apache Flink: its exactly-once Kafka source and sink, killed with -9 and restored from its last checkpoint."""

from __future__ import annotations

from pathlib import Path

from penstock.testing import peers
from penstock.testing.eos_chain import Process
from penstock.testing.neighbours.harness import Verdict, World, compiled, judge_numbers, missing
from penstock.testing.peers import Artifact

FLINK = "2.2.1"
ARTIFACTS = (
    *(Artifact("org.apache.flink", f"flink-{name}", FLINK) for name in ("streaming-java", "clients", "connector-base")),
    Artifact("org.apache.flink", "flink-connector-kafka", "5.0.0-2.2"),
    peers.LOGGING,
)
KILLS = 3


def incrementing(world: World) -> Verdict:
    """Transactions get names by a count; after a restart Flink probes every name that it may have used."""
    return _copy(world, "INCREMENTING")


def pooling(world: World) -> Verdict:
    """Names are used again; after a restart Flink asks the brokers which of them are open (ListTransactions)."""
    return _copy(world, "POOLING")


def _copy(world: World, naming: str) -> Verdict:
    jars = peers.jars(f"flink-{FLINK}", ARTIFACTS)
    classpath = compiled("FlinkCopy.java", jars, world.folder)
    source, target, name = "flink-in", "flink-out", "flink"
    world.create(source, target)
    checkpoints = world.folder / "checkpoints"
    arguments = [world.bootstrap, source, target, naming, str(checkpoints)]

    def command() -> list[str]:
        return peers.java_command(
            classpath, "FlinkCopy", *arguments, _newest(checkpoints), heap="512m", log="warn", opens=OPENS
        )

    child = world.run(command(), name)
    chunk = world.records // (KILLS + 2)
    for number in range(KILLS + 2):
        end = world.records if number == KILLS + 1 else (number + 1) * chunk
        seen = world.ended(target)
        world.feed(source, number * chunk, end)
        world.until(lambda seen=seen: world.ended(target) > seen, "Flink copies on", [(child, name)])  # type: ignore[misc]
        if number < KILLS:
            world.kill(child, "Flink")
            child.command = command()
            child.start()
        elif number == KILLS:
            world.kill_a_broker()
    _wait_for_all(world, target, child, name)
    child.stop()
    problems = judge_numbers(world.read(target), world.records)
    return Verdict("every record once, in the order of its partition", problems, f"{world.records:,} records")


def _wait_for_all(world: World, target: str, child: Process, name: str) -> None:
    def complete() -> bool:
        return missing((int(record.value) for record in world.read(target)), world.records) == 0

    world.until(complete, "Flink has copied everything", [(child, name)], seconds=240)


def _newest(checkpoints: Path) -> str:
    """The last complete checkpoint (it has its metadata), or nothing: then Flink begins at the start."""
    found = sorted(checkpoints.glob("*/chk-*/_metadata"), key=lambda path: path.stat().st_mtime)
    return found[-1].parent.as_uri() if found else ""


# Flink's serializers and its Kafka sink look into the JDK and are started with these by its own scripts.
OPENS = ("java.base/java.util", "java.base/java.lang", "java.base/java.time")
