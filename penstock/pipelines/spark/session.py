"""A SparkSession with nothing to set up: Java found, this Python used by the workers, quiet, and quick to start.

spark = session("my pipeline")                         # all cores of this machine
spark = session("my pipeline", master="spark://h:7077")  # the same on a cluster
spark = session("my pipeline", master="sc://h:15002")  # the same on a Spark Connect server
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import logging
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from penstock.base.own_folder import own_folder
from penstock.pipelines.sessions import closed_in_time
from penstock.pipelines.spark import requirements as packages
from penstock.pipelines.spark.java import find_java, quiet_home
from penstock.pipelines.spark.nursery import open_nursery

LOCAL: Final = "local[*]"

# Everything here can be changed by `settings`; these are what a pipeline wants when its user has said nothing.
_EVERYWHERE: Final = {
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.python.worker.reuse": "true",
    # A Python process that starts on a busy machine may take longer than the fifteen seconds that Spark grants it.
    "spark.python.authenticate.socketTimeout": "120s",
    "spark.sql.streaming.metricsEnabled": "true",
    # Changelog checkpoints of the only state store that transformWithState accepts.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}

_ON_ONE_MACHINE: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    # A shuffle of a stream on one machine wants a few partitions, not two hundred small state stores.
    "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2)),
    # The JVM's optimizing compiler takes a third of the CPU of a short run: it gets only what is really hot.
    "spark.driver.extraJavaOptions": (
        f"-XX:+Use{'Parallel' if (os.cpu_count() or 2) > 2 else 'Serial'}GC -XX:Tier4InvocationThreshold=50000"
        " -XX:Tier4MinInvocationThreshold=6000 -XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
    ),
    "spark.sql.streaming.minBatchesToRetain": "10",
}

_LOG_FILE: Final = """\
rootLogger.level = {level}
rootLogger.appenderRef.stderr.ref = stderr
appender.console.type = Console
appender.console.name = stderr
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{{yyyy-MM-dd'T'HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex{{short}}
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
logger.utils.name = org.apache.spark.util.Utils
logger.utils.level = error
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = {level}
"""


def session(
    name: str = "penstock",
    *,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    log_level: str = "error",
    requirements: Sequence[str] = (),
) -> Any:
    """Start Spark, or return the session that already runs in this process (whose master then stays as it is).

    `master` is the one setting that moves a pipeline to a cluster; without it the environment's SPARK_MASTER or all
    cores of this machine are used. `settings` are Spark's own `spark.*` names. `requirements` are Python packages that
    functions need: they go wherever Spark runs them.
    """
    master = _master(master)
    if is_remote(master):
        if requirements:
            raise packages.refuse_on_server()
        return _remote_session(name, master, settings or {})
    if requirements:
        packages.put_on_path(requirements)
    if requirements and not is_local(master):
        settings = {**(settings or {}), **packages.archive_settings(requirements, settings or {})}
    prepare_environment(local=is_local(master), log_level=log_level)
    python = _python_for(master, settings or {})
    from pyspark.sql import SparkSession

    _silence_query_contexts()
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in {**spark_settings(master, settings or {}, log_level), **python}.items():
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    if requirements and not is_local(master):
        packages.show_to_executors(made)
    return made


def _master(given: str | None) -> str:
    return given or os.environ.get("SPARK_MASTER") or LOCAL


def is_local(master: str | None) -> bool:
    """Whether a session of that master is one process on this machine."""
    return _master(master).startswith("local")


def is_remote(master: str | None) -> bool:
    """Whether that is a Spark Connect server: a Spark that others have started, without a JVM of ours."""
    return _master(master).startswith("sc://")


def of_server(settings: Mapping[str, str]) -> list[str]:
    """Settings that a Connect server takes only when it starts."""
    return [name for name in settings if not name.startswith("spark.sql.")]


def _remote_session(name: str, master: str, settings: Mapping[str, str]) -> Any:
    from pyspark.sql import SparkSession

    made = SparkSession.builder.appName(name).remote(master).getOrCreate()
    chosen = {**_EVERYWHERE, **settings}
    for key in chosen.keys() - set(of_server(chosen)):
        made.conf.set(key, chosen[key])
    return closed_in_time(made)


def _python_for(master: str, settings: Mapping[str, str]) -> dict[str, str]:
    """What the workers run, as settings. On one machine their processes come from a nursery, loaded and warm."""
    if is_local(master) and "spark.pyspark.python" not in settings:
        door = open_nursery()
        if door is not None:
            # Tasks are started by the one, what plans and commits for a data source by the other.
            os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = door
            return {"spark.pyspark.python": door, "spark.pyspark.driver.python": door}
    _warm_kernels()
    return {}


def _silence_query_contexts() -> None:
    """Errors of a query reach its caller as exceptions; PySpark would print each one beside that, at great length."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)


@cache
def _warm_kernels() -> None:
    """Let another process compile the kernels, if they are not on disk yet, while the JVM starts."""
    code = "from penstock.protocol import columnar; columnar.warm_up()"
    warming = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    atexit.register(_stop, warming)


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
    process.wait()


def spark_settings(master: str, settings: Mapping[str, str], log_level: str = "error") -> dict[str, str]:
    """All settings of a session: our defaults, overridden by the user's."""
    chosen = dict(_EVERYWHERE)
    if master.startswith(("local", "spark://127.0.0.1", "spark://localhost")):
        chosen.update(_ON_ONE_MACHINE)
        chosen["spark.sql.warehouse.dir"] = str(own_folder("warehouse"))
    chosen["spark.pyspark.python"] = sys.executable
    chosen["spark.pyspark.driver.python"] = sys.executable
    chosen["spark.log.level"] = log_level.upper()
    chosen.update(settings)
    return chosen


def prepare_environment(*, local: bool, log_level: str = "error") -> None:
    """What must be in the environment before the JVM starts. Called by `session`; harmless when called twice."""
    os.environ["JAVA_HOME"] = str(quiet_home(find_java().home))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        if "SPARK_HOME" not in os.environ:
            os.environ["SPARK_HOME"] = str(_lean_home())
    os.environ.setdefault("SPARK_CONF_DIR", str(_quiet_conf_folder(log_level)))
    _show_data_source()


def _show_data_source() -> None:
    """Spark lists the folders on its Python's path for data sources; an editable install of ours is in none of them."""
    import pkgutil

    import pyspark_penstock

    if not any(module.name == "pyspark_penstock" for module in pkgutil.iter_modules(_without_current(sys.path))):
        folder = str(Path(pyspark_penstock.__file__).parent.parent)
        paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
        if folder not in paths:
            os.environ["PYTHONPATH"] = os.pathsep.join([*paths, folder])


def _without_current(paths: list[str]) -> list[str]:
    """Spark's workers do not run where we do."""
    return [path for path in paths if path and Path(path) != Path.cwd()]


def _lean_home() -> Path:
    """Spark's own files without its copy of the Python code.

    Spark puts `python/lib/pyspark.zip` of its home in front of every worker's path. Python keeps no compiled code for
    a zip, so each of the many worker processes would compile PySpark anew, a second or two each time; without the zip
    they take the installed package, which is the same code.
    """
    package = Path(importlib.util.find_spec("pyspark").submodule_search_locations[0])  # type: ignore[union-attr,index]
    name = re.sub(r"\W+", "_", str(package)).strip("_")
    folder = own_folder("spark") / "home" / name
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for part in ("bin", "jars", "sbin", "data"):
        link = folder / part
        if (package / part).exists() and not link.exists():
            with contextlib.suppress(FileExistsError):  # another process was faster
                link.symlink_to(package / part)
    return folder


def _quiet_conf_folder(log_level: str) -> Path:
    """Spark reads its logging set-up before any setting of ours: so it gets a folder that holds one."""
    folder = own_folder("spark") / log_level
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    target = folder / "log4j2.properties"
    content = _LOG_FILE.format(level=log_level)
    if not target.exists() or target.read_text() != content:
        fresh = target.with_name(f"log4j2.{os.getpid()}")
        fresh.write_text(content)
        fresh.replace(target)
    return folder
