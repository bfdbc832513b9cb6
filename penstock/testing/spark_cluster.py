"""A Spark standalone cluster of the PySpark package on loopback: a master, workers, and the executors they start."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

START_SECONDS: Final = 120
_OPENED: Final = ("java.lang", "java.nio", "sun.nio.ch")


@dataclass(frozen=True)
class SparkCluster:
    master: str  # spark://…
    workers: tuple[int, ...]  # their process ids: parents of the executors


@contextmanager
def spark_cluster(folder: Path, *, workers: int = 2, cores: int = 1, memory: str = "1g") -> Iterator[SparkCluster]:
    """`cores` and `memory` are those of each worker."""
    import pyspark

    from penstock.pipelines.spark.java import find_java

    folder.mkdir(parents=True, exist_ok=True)
    home = Path(pyspark.__file__).parent
    java = find_java().home / "bin" / "java"
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),  # workers start executors from there
        "SPARK_SCALA_VERSION": "2.13",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: str) -> Path:
        log = folder / f"{name}.log"
        opens = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
        command = [str(java), "-Xmx256m", *opens, "-cp", str(home / "jars" / "*"), *arguments]
        with log.open("wb") as file:
            started.append(subprocess.Popen(command, env=environment, stdout=file, stderr=file, cwd=folder))
        return log

    try:
        ports = ["--host", "127.0.0.1", "--webui-port", "0"]
        log = start("master", "org.apache.spark.deploy.master.Master", *ports, "--port", "0")
        url = found_in(log, r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
        for index in range(workers):
            options = [*ports, "--cores", str(cores), "--memory", memory, "--work-dir", str(folder / f"work{index}")]
            log = start(f"worker{index}", "org.apache.spark.deploy.worker.Worker", *options, url)
            found_in(log, r"Successfully registered with (master)")
        yield SparkCluster(url, tuple(process.pid for process in started[1:]))
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(30)


def found_in(log: Path, pattern: str) -> str:
    """The first group of a line that a log will hold soon."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        found = re.search(pattern, log.read_text(errors="replace"))
        if found:
            return found[1]
        time.sleep(0.2)
    raise TimeoutError(f"{pattern} did not appear in:\n{log.read_text(errors='replace')[-2000:]}")
