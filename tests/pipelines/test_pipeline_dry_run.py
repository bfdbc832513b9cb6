"""`penstock pipeline dry-run` as its user sees it: what would run, or one line that says why not. It writes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.main import run as penstock
from penstock.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.spark

SPEC = """\
name: tried
sources:
  orders: {topic: TOPIC, format: {type: json, schema: "id STRING, amount DOUBLE"}}
views:
  large: SELECT id, amount FROM orders WHERE amount > 10
sinks:
  out: {from: large, topic: TOPIC.out, key: id}
"""


@pytest.fixture
def dry_run(spark: Any, broker: BrokerProcess, tmp_path: Path, capsys: Any) -> Callable[..., tuple[int, str, str]]:
    """(exit code, output, complaint) of a dry run of this text."""

    def call(text: str) -> tuple[int, str, str]:
        file = tmp_path / "tried.yml"
        file.write_text(text)
        capsys.readouterr()
        arguments = ["pipeline", "dry-run", str(file), "--state-dir", str(tmp_path / "state"), "--json"]
        code = penstock([*arguments, "-b", broker.bootstrap])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return call


def test_it_shows_the_queries_and_writes_nothing(
    dry_run: Callable[..., tuple[int, str, str]],
    broker: BrokerProcess,
    new_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    from confluent_kafka.admin import AdminClient

    topic = new_topic(partitions=1, label="orders")
    code, out, complaint = dry_run(SPEC.replace("TOPIC", topic))
    assert code == 0, complaint
    queries = {row["query"]: row for row in map(json.loads, out.splitlines())}
    assert set(queries) == {"out", "dead-letters"}
    assert queries["out"]["reads"] == "large"
    assert queries["out"]["columns"] == "struct<id:string,amount:double>"
    topics = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0}).list_topics(timeout=30).topics
    assert f"{topic}.out" not in topics and "tried.dlq" not in topics
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("SELECT id, amount", "SELECT id, amuont"), "amuont"),
        (("key: id", "key: nobody"), "nobody"),
        (("TOPIC, format", "absent-topic, format"), "absent-topic"),
        (("name: tried", "name: tried\ntrigger: real-time"), "PythonMicroBatchStream"),
        (("from: large", "from: larger"), "did you mean 'large'"),
    ],
)
def test_what_would_not_run_is_refused_in_one_line(
    change: tuple[str, str],
    complaint: str,
    dry_run: Callable[..., tuple[int, str, str]],
    new_topic: Callable[..., str],
) -> None:
    text = SPEC.replace(*change).replace("TOPIC", new_topic(partitions=1, label="orders"))
    code, out, said = dry_run(text)
    assert code != 0 and out == ""
    assert complaint in said
    assert "Traceback" not in said and len(said.strip().splitlines()) <= 2  # the sentence, and perhaps a hint
