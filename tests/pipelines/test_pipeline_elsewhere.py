"""Pipelines beyond this process: on a Spark cluster, as Spark's own declarative files, and as a query on the spot."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.main import run as penstock
from penstock.pipelines.spark.java import find_java
from penstock.testing.ports import free_port
from penstock.testing.spark_cluster import found_in, spark_cluster
from tests.pipelines.test_pipeline_requirements import wheel

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
    assert penstock(["sql", f"select id, _offset from topic('{topic}') limit 1", *there]) == 0
    assert capsys.readouterr().out.splitlines()[0].split() == ["id", "_offset"]
    assert penstock(["sql", f"select count(*) as n from topic('{topic}', since => '1 ms')", "--json", *there]) == 0
    assert json.loads(capsys.readouterr().out) == {"n": 0}
    assert penstock(["sql", f"select amunt from topic('{topic}')", *there]) == 5
    assert "`amunt` cannot be resolved" in capsys.readouterr().err
    assert penstock(["sql", "select * from topic('no-such-topic')", *there]) == 5
    assert capsys.readouterr().err == "penstock: there is no topic 'no-such-topic'\n"
    assert penstock(["sql", "select 1", *there]) == 5


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """A master and two workers of the PySpark package, on loopback."""
    with spark_cluster(tmp_path) as made:
        yield made.master


@pytest.fixture
def connect_server(tmp_path: Path) -> Iterator[str]:
    """Spark's own Connect server from the PySpark package, with Penstock in its Python."""
    import pyspark

    home, port = Path(pyspark.__file__).parent, free_port()
    environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    environment |= {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(Path(__file__).parents[2])}
    environment |= {"JAVA_HOME": str(find_java().home), "SPARK_SCALA_VERSION": "2.13"}
    command = [str(home / "bin" / "spark-submit"), "--master", "local[2]"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    command += ["--conf", f"spark.connect.grpc.binding.port={port}", "--conf", "spark.ui.enabled=false"]
    command += ["--conf", "spark.connect.grpc.binding.address=127.0.0.1", "spark-internal"]
    log = tmp_path / "connect.log"
    with log.open("wb") as file:
        process = subprocess.Popen(command, env=environment, stdout=file, stderr=file, cwd=tmp_path)
    try:
        found_in(log, r"(Spark Connect server started)")
        yield f"sc://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


def _own_example(tmp_path: Path, topic: str, out: str) -> Path:
    text = (EXAMPLES / "clean-orders.yml").read_text()
    text = text.replace("topic: orders\n", f"topic: {topic}\n").replace("topic: orders.clean", f"topic: {out}")
    file = tmp_path / "clean.yml"
    file.write_text(text.replace("name: clean-orders", f"name: clean-{uuid.uuid4().hex[:6]}"))
    return file


@pytest.mark.slow
def test_a_spark_cluster_gives_the_same_output_as_this_machine(
    cluster: str,
    broker: Any,
    new_topic: Callable[..., str],
    produce: Callable[..., None],
    read_topic: Callable[..., Any],
    tmp_path: Path,
) -> None:
    topic = new_topic(label="orders")
    produce(topic, [*ORDERS, "{oops"])
    _gives_the_same(cluster, broker, new_topic, topic, read_topic, tmp_path)


@pytest.mark.slow
def test_a_connect_server_gives_the_same_output_as_this_machine(
    connect_server: str,
    broker: Any,
    new_topic: Callable[..., str],
    produce: Callable[..., None],
    read_topic: Callable[..., Any],
    tmp_path: Path,
) -> None:
    topic = new_topic(label="orders")
    produce(topic, [*ORDERS, "{oops"])
    _gives_the_same(connect_server, broker, new_topic, topic, read_topic, tmp_path)
    file = _own_example(tmp_path, topic, new_topic(label="out"))
    settings = "settings: {spark: {spark.executor.memory: 3g}}\nsinks:\n"
    second = "sinks:\n  too: {from: clean, connector: console}\n"
    for more, sentence in (
        (settings, "is decided when the Spark Connect server starts"),
        (second, "on a Spark Connect server a view feeds one topic"),
    ):
        refused = tmp_path / "refused.yml"
        refused.write_text(file.read_text().replace("sinks:\n", more))
        done = _run(refused, connect_server, broker, tmp_path)
        assert done.returncode != 0 and sentence in done.stderr, done.stderr[-2000:]


def _run(file: Path, master: str, broker: Any, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock.cli.main", "pipeline", "run", str(file), "--until-caught-up"]
    command += ["--master", master, "--state-dir", str(tmp_path / "state"), "-b", broker.bootstrap]
    return subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)


def _gives_the_same(
    elsewhere: str, broker: Any, new_topic: Callable[..., str], topic: str, read_topic: Any, tmp_path: Path
) -> None:
    outputs = []
    for master in (elsewhere, "local[2]"):
        out = new_topic(label="out")
        file = _own_example(tmp_path, topic, out)
        done = _run(file, master, broker, tmp_path)
        assert done.returncode == 0, done.stderr[-2000:]
        outputs.append(sorted((message.key(), message.value()) for message in read_topic(out)))
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) == len(ORDERS)


NEEDY = """\
name: needy-{label}
sources:
  orders: {{topic: {topic}, format: {{type: json, schema: "id STRING, country STRING"}}}}
views:
  loud: {{python: "needy:loud"}}
sinks:
  out: {{from: loud, topic: {out}, key: id}}
settings: {{requirements: ["{package}"]}}
modules:
  needy: |
    from pyspark.sql.functions import udf

    @udf("string")
    def shouted(text):
        import shouting
        return shouting.loud(text)

    def loud(orders):
        return orders.select("id", shouted("country").alias("country"))
"""


@pytest.mark.slow
@pytest.mark.parametrize("where", ["local[2]", "cluster"])
def test_packages_that_a_pipeline_requires_go_where_its_functions_run(
    where: str,
    request: pytest.FixtureRequest,
    broker: Any,
    new_topic: Callable[..., str],
    produce: Callable[..., None],
    read_topic: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    master = where if where.startswith("local") else request.getfixturevalue(where)
    # Only now: servers and workers that run already have no such package.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    topic, out = new_topic(label="orders"), new_topic(label="out")
    produce(topic, ORDERS)
    file = tmp_path / "needy.yml"
    package = wheel(tmp_path)
    file.write_text(NEEDY.format(label=uuid.uuid4().hex[:6], topic=topic, out=out, package=package))
    done = _run(file, master, broker, tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert sorted(json.loads(message.value())["country"] for message in read_topic(out)) == ["DE"] * len(ORDERS)


@pytest.mark.slow
def test_a_cluster_without_room_is_named_as_what_the_pipeline_waits_for(
    cluster: str, broker: Any, new_topic: Callable[..., str], produce: Callable[..., None], tmp_path: Path
) -> None:
    topic = new_topic(label="orders")
    produce(topic, ORDERS)
    file = _own_example(tmp_path, topic, new_topic(label="out"))
    file.write_text(file.read_text() + "settings:\n  spark:\n    spark.executor.memory: 3g\n")  # a worker has 1g
    command = [sys.executable, "-m", "penstock.cli.main", "pipeline", "run", str(file), "--until-caught-up"]
    command += ["--master", cluster, "--state-dir", str(tmp_path / "state"), "-b", broker.bootstrap]
    with (tmp_path / "said").open("wb") as said, subprocess.Popen(command, stdout=said, stderr=said) as pipeline:
        try:
            sentence = found_in(tmp_path / "said", r"(has sent no executor yet.*)")
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
