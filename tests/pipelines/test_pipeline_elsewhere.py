"""Pipelines beyond this process: on a Spark cluster, as Spark's own declarative files, and as a query on the spot."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.main import run as penstock
from penstock.pipelines.spark.java import find_java

EXAMPLES = Path(__file__).parents[2] / "examples" / "pipelines"
ORDERS = [(f"k{n}", json.dumps({"id": f"k{n}", "amount": n * 40.0, "country": "de"})) for n in range(1, 6)]


@pytest.mark.spark
def test_a_query_on_the_spot(
    spark: Any, broker: Any, new_topic: Callable[..., str], produce: Callable[..., None], tmp_path: Path, capsys: Any
) -> None:
    topic = new_topic(partitions=1, label="orders")
    produce(topic, [*ORDERS, "{oops"])
    there = ["-b", broker.bootstrap]
    text = f"select country, count(*) as n, sum(amount) as total from topic('{topic}') where _error is null group by 1"
    assert penstock(["sql", text, "--json", *there]) == 0
    assert json.loads(capsys.readouterr().out) == {"country": "de", "n": 5, "total": 600.0}
    assert penstock(["sql", f"select * from topic('{topic}')", "--parquet", str(tmp_path / "p"), *there]) == 0
    assert spark.read.parquet(str(tmp_path / "p")).count() == 6
    capsys.readouterr()
    assert penstock(["sql", f"select count(*) as n from topic('{topic}', since => '1 ms')", "--json", *there]) == 0
    assert json.loads(capsys.readouterr().out) == {"n": 0}
    assert penstock(["sql", f"select amunt from topic('{topic}')", *there]) == 5
    assert "`amunt` cannot be resolved" in capsys.readouterr().err
    assert penstock(["sql", "select * from topic('no-such-topic')", *there]) == 5
    assert capsys.readouterr().err == "penstock: there is no topic 'no-such-topic'\n"
    assert penstock(["sql", "select 1", *there]) == 5


@pytest.fixture
def spark_cluster(tmp_path: Path) -> Iterator[str]:
    """A master and two workers of the PySpark package, on loopback."""
    import pyspark

    home = Path(pyspark.__file__).parent
    jars = home / "jars" / "*"
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
        log = tmp_path / f"{name}.log"
        opens = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in ("java.lang", "java.nio", "sun.nio.ch")]
        command = [str(java), "-Xmx256m", *opens, "-cp", str(jars), *arguments]
        with log.open("wb") as file:
            started.append(subprocess.Popen(command, env=environment, stdout=file, stderr=file, cwd=tmp_path))
        return log

    try:
        log = start(
            "master", "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"
        )
        url = _find(log, r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
        for index in range(2):
            options = ["--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0"]
            options += ["--work-dir", str(tmp_path / f"work{index}")]
            worker = start(f"worker{index}", "org.apache.spark.deploy.worker.Worker", *options, url)
            _find(worker, r"Successfully registered with (master)")
        yield url
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(30)


def _find(log: Path, pattern: str) -> str:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        found = re.search(pattern, log.read_text(errors="replace"))
        if found:
            return found[1]
        time.sleep(0.2)
    raise AssertionError(f"{pattern} did not appear in:\n{log.read_text(errors='replace')[-2000:]}")


def _own_example(tmp_path: Path, topic: str, out: str) -> Path:
    text = (EXAMPLES / "clean-orders.yml").read_text()
    text = text.replace("topic: orders\n", f"topic: {topic}\n").replace("topic: orders.clean", f"topic: {out}")
    file = tmp_path / "clean.yml"
    file.write_text(text.replace("name: clean-orders", f"name: clean-{uuid.uuid4().hex[:6]}"))
    return file


@pytest.mark.slow
def test_a_spark_cluster_gives_the_same_output_as_this_machine(
    spark_cluster: str,
    broker: Any,
    new_topic: Callable[..., str],
    produce: Callable[..., None],
    read_topic: Callable[..., Any],
    tmp_path: Path,
) -> None:
    topic = new_topic(label="orders")
    produce(topic, [*ORDERS, "{oops"])
    outputs = []
    for master in (spark_cluster, "local[2]"):
        out = new_topic(label="out")
        file = _own_example(tmp_path, topic, out)
        command = [sys.executable, "-m", "penstock.cli.main", "pipeline", "run", str(file), "--until-caught-up"]
        command += ["--master", master, "--state-dir", str(tmp_path / "state"), "-b", broker.bootstrap]
        done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        outputs.append(sorted((message.key(), message.value()) for message in read_topic(out)))
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) == len(ORDERS)


@pytest.mark.slow
def test_a_cluster_without_room_is_named_as_what_the_pipeline_waits_for(
    spark_cluster: str, broker: Any, new_topic: Callable[..., str], produce: Callable[..., None], tmp_path: Path
) -> None:
    topic = new_topic(label="orders")
    produce(topic, ORDERS)
    file = _own_example(tmp_path, topic, new_topic(label="out"))
    file.write_text(file.read_text() + "settings:\n  spark:\n    spark.executor.memory: 3g\n")  # a worker has 1g
    command = [sys.executable, "-m", "penstock.cli.main", "pipeline", "run", str(file), "--until-caught-up"]
    command += ["--master", spark_cluster, "--state-dir", str(tmp_path / "state"), "-b", broker.bootstrap]
    with (tmp_path / "said").open("wb") as said, subprocess.Popen(command, stdout=said, stderr=said) as pipeline:
        try:
            sentence = _find(tmp_path / "said", r"(has sent no executor yet.*)")
        finally:
            pipeline.terminate()
    assert "3g of memory" in sentence


@pytest.mark.slow
def test_sparks_own_declarative_pipeline_with_our_source_and_sink(
    broker: Any,
    new_topic: Callable[..., str],
    produce: Callable[..., None],
    read_topic: Callable[..., Any],
    tmp_path: Path,
) -> None:
    topic, out = new_topic(label="orders"), new_topic(label="large")
    produce(topic, ORDERS)
    folder = tmp_path / "declared"
    shutil.copytree(EXAMPLES / "spark-declarative", folder)
    spec = folder / "spark-pipeline.yml"
    configuration = f"configuration:\n  spark.sql.warehouse.dir: {tmp_path}/warehouse\n"
    spec.write_text(
        spec.read_text().replace("file:///tmp/declared-orders", f"file://{tmp_path}/storage") + configuration
    )
    definitions = folder / "definitions" / "orders.py"
    text = definitions.read_text().replace('.option("subscribe", "orders")', f'.option("subscribe", "{topic}")')
    definitions.write_text(text.replace("orders.large", out))
    command = [sys.executable, "-m", "penstock.cli.main", "pipeline", "run", str(spec), "--until-caught-up"]
    done = subprocess.run(
        [*command, "-b", broker.bootstrap], capture_output=True, text=True, timeout=280, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert sorted(message.key() for message in read_topic(out)) == [b"k3", b"k4", b"k5"]
