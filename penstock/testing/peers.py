"""Real peers for tests and benchmarks: Apache Kafka and its Java tools, fetched through Maven.

Nothing here is needed to run Penstock. Jars land in a cache folder (`PENSTOCK_PEERS`, else `~/.cache/penstock-peers`)
and are fetched once. Where Java or Maven is missing, `PeerUnavailable` says which, and tests skip with that reason.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from penstock.testing.ports import free_port

KAFKA_VERSION = os.environ.get("KAFKA_VERSION", "4.3.1")
_CLUSTER_ID = "cGVuc3RvY2stcGVlcnM-LQ"


class PeerUnavailable(Exception):
    """A peer cannot be had on this machine; the message says what is missing."""


@dataclass(frozen=True)
class Artifact:
    group: str
    name: str
    version: str
    transitive: bool = True
    classifier: str = ""

    def dependency(self) -> str:
        everything = "<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
        exclusions = "" if self.transitive else f"<exclusions>{everything}</exclusions>"
        classifier = f"<classifier>{self.classifier}</classifier>" if self.classifier else ""
        return (
            f"<dependency><groupId>{self.group}</groupId><artifactId>{self.name}</artifactId>"
            f"<version>{self.version}</version>{classifier}{exclusions}</dependency>"
        )


def _kafka(name: str) -> Artifact:
    return Artifact("org.apache.kafka", name, KAFKA_VERSION)


LOGGING = Artifact("org.slf4j", "slf4j-simple", "1.7.36")
KAFKA = (_kafka("kafka_2.13"), _kafka("kafka-tools"), LOGGING)
KAFKA_STREAMS = (*KAFKA, _kafka("kafka-streams"))
KAFKA_CONNECT = (*KAFKA, _kafka("connect-runtime"), _kafka("connect-file"), _kafka("connect-json"))
# Spark's own connector, as it runs on pyspark 4.3: the set is named whole, since its own POM does not resolve.
SPARK_KAFKA_CONNECTOR = (
    Artifact("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0", transitive=False),
    Artifact("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.1.0-preview1", transitive=False),
    Artifact("org.apache.kafka", "kafka-clients", "3.9.2", transitive=False),
    Artifact("org.apache.commons", "commons-pool2", "2.13.1", transitive=False),
)


def cache_folder() -> Path:
    configured = os.environ.get("PENSTOCK_PEERS")
    return Path(configured) if configured else Path.home() / ".cache" / "penstock-peers"


def java() -> str:
    found = shutil.which("java")
    if found is None:
        raise PeerUnavailable("no `java` on PATH: install a JRE 17 or newer to run Kafka's own tools")
    return found


def jars(label: str, artifacts: Sequence[Artifact]) -> Path:
    """The folder with these artifacts' jars, fetched on first use (safe to call from several processes)."""
    home = cache_folder() / label
    complete = home / ".complete"
    if complete.exists():
        return home / "lib"
    maven = shutil.which("mvn")
    if maven is None:
        raise PeerUnavailable("no `mvn` on PATH: install Maven to fetch Kafka's own tools")
    home.mkdir(parents=True, exist_ok=True)
    with (home / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not complete.exists():
            _fetch(maven, home, artifacts)
            complete.touch()
    return home / "lib"


def _fetch(maven: str, home: Path, artifacts: Sequence[Artifact]) -> None:
    pom = home / "pom.xml"
    dependencies = "\n".join(artifact.dependency() for artifact in artifacts)
    pom.write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>peers</groupId><artifactId>peers</artifactId>"
        f"<version>1</version><dependencies>{dependencies}</dependencies></project>"
    )
    command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={home / 'lib'}"]
    fetched = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if fetched.returncode != 0:
        first_errors = "\n".join(line for line in fetched.stdout.splitlines() if "ERROR" in line)[:600]
        raise PeerUnavailable(f"Maven could not fetch {home.name}: {first_errors}")


def kafka_jars() -> Path:
    return jars(f"kafka-{KAFKA_VERSION}", KAFKA)


def spark_kafka_connector_jars() -> list[Path]:
    return sorted(jars("spark-kafka-connector", SPARK_KAFKA_CONNECTOR).glob("*.jar"))


def java_command(
    classpath: Path | str,
    main_class: str,
    *arguments: str,
    heap: str = "256m",
    log: str = "error",
    opens: Sequence[str] = (),
) -> list[str]:
    entries = f"{classpath}/*" if isinstance(classpath, Path) else classpath
    options = [
        f"-Xmx{heap}",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        f"-Dorg.slf4j.simpleLogger.defaultLogLevel={log}",
        *(part for package in opens for part in ("--add-opens", f"{package}=ALL-UNNAMED")),
    ]
    return [java(), *options, "-cp", entries, main_class, *arguments]


def kafka_tool(
    main_class: str,
    *arguments: str,
    stdin: str | None = None,
    timeout: float = 120,
    properties: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run one of Kafka's tools to its end: TopicCommand, GetOffsetShell, consumer.group.ConsumerGroupCommand, …

    A class name without a package is looked up in org.apache.kafka.tools. `properties` are those of the JVM.
    """
    full_name = main_class if main_class.startswith(("org.", "kafka.")) else f"org.apache.kafka.tools.{main_class}"
    command = java_command(kafka_jars(), full_name, *arguments)
    command[1:1] = [f"-D{name}={value}" for name, value in (properties or {}).items()]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout)


def process_cpu_seconds(pid: int) -> float:
    """User and system time that a process has used so far."""
    text = Path(f"/proc/{pid}/stat").read_text()
    values = text[text.rindex(")") + 2 :].split()
    return (int(values[11]) + int(values[12])) / os.sysconf("SC_CLK_TCK")


def process_resident_bytes(pid: int) -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found.group(1)) * 1024 if found else 0


@dataclass
class KafkaPeer:
    """A running Apache Kafka: `bootstrap` to reach it, `processes` to watch its cost."""

    ports: list[int]
    folder: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def cpu_seconds(self) -> float:
        return sum(process_cpu_seconds(process.pid) for process in self.processes)

    def resident_bytes(self) -> int:
        return sum(process_resident_bytes(process.pid) for process in self.processes)


@contextmanager
def apache_kafka(nodes: int = 1, heap: str = "1g", settings: dict[str, str] | None = None) -> Iterator[KafkaPeer]:
    """A fresh Apache Kafka (KRaft) on free loopback ports; stopped and removed at the end.

    In `settings`, {port} and {controller} stand for the ports of a node (for listeners beside the plain one).
    """
    library = kafka_jars()
    folder = Path(tempfile.mkdtemp(prefix="kafka-peer-"))
    peer = KafkaPeer([free_port() for _ in range(nodes)], folder)
    controllers = [free_port() for _ in range(nodes)]
    voters = ",".join(f"{node + 1}@127.0.0.1:{port}" for node, port in enumerate(controllers))
    try:
        for node in range(nodes):
            config = folder / f"{node + 1}.properties"
            config.write_text(
                _kafka_properties(node, peer.ports[node], controllers[node], voters, nodes, folder, settings)
            )
            format_storage = java_command(
                library, "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(config)
            )
            subprocess.run(format_storage, check=True, capture_output=True, timeout=120)
        for node in range(nodes):
            config = folder / f"{node + 1}.properties"
            options = [f"-Xmx{heap}", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
            command = [java(), *options, "-cp", f"{library}/*", "kafka.Kafka", str(config)]
            log = (folder / f"{node + 1}.log").open("wb")
            peer.processes.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT))
            log.close()
        for port in peer.ports:
            wait_for_port(port, 180, lambda: (folder / "1.log").read_text()[-2000:])
        yield peer
    finally:
        for process in peer.processes:
            process.send_signal(signal.SIGKILL)
        for process in peer.processes:
            process.wait(30)
        shutil.rmtree(folder, ignore_errors=True)


def _kafka_properties(
    node: int, port: int, controller: int, voters: str, nodes: int, folder: Path, settings: dict[str, str] | None
) -> str:
    replicas = min(nodes, 3)
    properties = {
        "process.roles": "broker,controller",
        "node.id": str(node + 1),
        "controller.quorum.voters": voters,
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(folder / str(node + 1)),
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": "2" if replicas > 1 else "1",
        "share.coordinator.state.topic.replication.factor": str(replicas),
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        **(settings or {}),
    }
    text = "".join(f"{name}={value}\n" for name, value in properties.items())
    return text.replace("{port}", str(port)).replace("{controller}", str(controller))


def wait_for_port(port: int, seconds: float, on_failure: object = None) -> None:
    deadline = time.monotonic() + seconds
    while True:
        with socket.socket() as probe:
            probe.settimeout(1)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        if time.monotonic() > deadline:
            detail = on_failure() if callable(on_failure) else ""
            raise PeerUnavailable(f"nothing listens on 127.0.0.1:{port} after {seconds:.0f} s {detail}")
        time.sleep(0.05)
