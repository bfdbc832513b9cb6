"""Spark's own declarative pipelines (`spark-pipeline.yml`, `@dp.table`, `@dp.append_flow`, …) with our source and sink.

Spark runs such a pipeline until it has caught up. To run continuously, one process keeps the Spark Connect server and
updates the pipeline again and again.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

PAUSE_SECONDS: Final = 1.0


class DeclarativeError(Exception):
    """Spark refuses the pipeline, or it failed: one line."""


def run(
    spec: Path,
    properties: Mapping[str, str],
    *,
    dry: bool = False,
    continuously: bool = False,
    should_stop: Callable[[], bool] = lambda: False,
) -> None:
    """Update the pipeline once, or until told to stop. Definitions find the cluster in PENSTOCK_BOOTSTRAP."""
    if not spec.is_file():
        raise DeclarativeError(f"there is no file {spec}")
    command = [sys.executable, "-m", "penstock.pipelines.declarative", str(spec.absolute())]
    command += ["--dry"] * dry + ["--continuously"] * continuously
    own = environment_for(properties)  # it prepares this process's environment, too: copy that afterwards
    environment = {**os.environ, **own}
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace"
    )
    assert process.stdin is not None and process.stderr is not None
    try:
        tail = _relay(process, should_stop)
    finally:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
    if process.returncode and not should_stop():
        raise DeclarativeError(_reason(tail))


def environment_for(properties: Mapping[str, str]) -> dict[str, str]:
    from penstock.pipelines.spark.session import prepare_environment

    prepare_environment(local=True)
    return {"PENSTOCK_BOOTSTRAP": properties["bootstrap.servers"], "SPARK_CONNECT_MODE_ENABLED": "1"}


def _relay(process: subprocess.Popen[str], should_stop: Callable[[], bool]) -> list[str]:
    import threading

    tail: list[str] = []

    def read() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            tail.append(line.rstrip())
            del tail[:-200]

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    while process.poll() is None and not should_stop():
        time.sleep(0.1)
    if process.poll() is not None:
        reader.join(5)
    return tail


def _reason(tail: list[str]) -> str:
    for line in reversed(tail):
        if re.match(r"(\w+\.)*\w*(Error|Exception): ", line) or line.startswith("["):
            return re.sub(r"^(\w+\.)+", "", line)[:600]
    return tail[-1] if tail else "Spark ended without saying why"


def _settings(given: Mapping[str, str]) -> dict[str, str]:
    from penstock.pipelines.spark.session import LOCAL, spark_settings

    chosen = spark_settings(os.environ.get("SPARK_MASTER") or LOCAL, given)
    return {key: value for key, value in chosen.items() if key != "spark.log.level"}


@contextlib.contextmanager
def _connect(configuration: Mapping[str, str]) -> Iterator[Any]:
    """A Spark Connect server inside this process and a session to it."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.remote(os.environ.get("SPARK_MASTER") or "local[*]")
    for key, value in _settings(configuration).items():
        builder = builder.config(key, value)
    spark = builder.config("spark.sql.connect.serverStacktrace.enabled", "false").getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def _update(spark: Any, path: Path, *, dry: bool) -> None:
    """What `spark-pipelines run` does between making a session and stopping it."""
    from pyspark.pipelines import cli
    from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry
    from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph, handle_pipeline_events, start_run

    spec = cli.load_pipeline_spec(path)
    # Static settings were given to the server when it started; as settings of a query Spark refuses them.
    changeable = {key: value for key, value in spec.configuration.items() if spark.conf.isModifiable(key)}
    graph = create_dataflow_graph(
        spark, default_catalog=spec.catalog, default_database=spec.database, sql_conf=changeable
    )
    cli.register_definitions(path, SparkConnectGraphElementRegistry(spark, graph), spec, spark, graph)
    run_events = start_run(
        spark, graph, full_refresh=[], full_refresh_all=False, refresh=[], dry=dry, storage=spec.storage
    )
    handle_pipeline_events(run_events)


def main() -> None:
    import argparse
    import threading

    from pyspark.pipelines import cli

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("spec", type=Path)
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--continuously", action="store_true")
    arguments = parser.parse_args()
    stopping = threading.Event()

    def watch() -> None:
        while sys.stdin.readline():
            pass
        stopping.set()

    threading.Thread(target=watch, daemon=True).start()
    with _connect(cli.load_pipeline_spec(arguments.spec).configuration) as spark:
        while True:
            _update(spark, arguments.spec, dry=arguments.dry)
            if not arguments.continuously or stopping.wait(PAUSE_SECONDS):
                break


if __name__ == "__main__":
    main()
