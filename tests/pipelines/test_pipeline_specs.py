"""Pipelines as data: three ways to write one, and errors that name the place and the nearest known word."""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.client.metadata import BrokerAddress, ClusterView
from penstock.pipelines import Pipeline, spec_sql, spec_yaml
from penstock.pipelines.admin import ensure_topic
from penstock.pipelines.connectors.base import Context
from penstock.pipelines.connectors.topic import TopicSource
from penstock.pipelines.load import load
from penstock.pipelines.secrets import Allowed, SecretError, allow, plain_secrets, redacted, resolve
from penstock.pipelines.spec import SpecError, from_data
from penstock.pipelines.storage import LocalStorage

EXAMPLES = Path(__file__).parents[2] / "examples" / "pipelines"

GOOD = """\
name: orders
sources:
  orders:
    topic: orders
    format: {type: json, schema: "id STRING"}
    watermark: {column: at, delay: 1 minute}
views:
  clean: SELECT * FROM orders
  rest: {operator: branch, from: clean, cases: {big: "id > 1"}}
sinks:
  out: {from: big, topic: clean}
trigger: available-now
"""


def test_a_spec_survives_being_stored() -> None:
    spec = spec_yaml.load_text(GOOD)
    assert from_data(spec.to_data()) == spec
    assert spec.trigger.available_now
    assert spec.dead_letter_topic == "orders.dlq"


@pytest.mark.parametrize(
    ("right", "wrong", "line", "message"),
    [
        ("topic: orders", "topc: orders", 4, "did you mean 'topic'?"),
        ("trigger:", "triger:", 12, "unknown key 'triger'; did you mean 'trigger'?"),
        ("schema:", "shema:", 5, "did you mean 'schema'?"),
        ("delay:", "dealy:", 6, "did you mean 'delay'?"),
        ("from: big", "from: bgi", 11, "there is no view or source 'bgi'; did you mean 'big'?"),
        ("operator: branch", "operator: brnch", 9, "there is no operator 'brnch'; did you mean 'branch'?"),
        ("cases:", "case:", 9, "unknown key 'case' in views.rest; did you mean 'cases'?"),
        ("trigger: available-now", "trigger: 5 parsecs", 12, "write it like 500 ms, 5 seconds"),
        ("trigger: available-now", "trigger: real-time", 12, "use an interval"),
        ("name: orders", "name: 5", 1, "should be a valid string"),
        ("type: json", "type: jsn", 5, "there is no 'jsn'; did you mean 'json'?"),
        ("sinks:", "views:", 10, "the key 'views' stands here twice"),
        ("name: orders", "name: [orders", 2, "this is no YAML"),
        ("topic: orders", "topic: orders.dlq", 3, "it reads orders.dlq, where this pipeline writes dead letters"),
        ("topic: orders", "pattern: orders.*", 3, "it reads orders.dlq, where this pipeline writes dead letters"),
        ("topic: orders", "pattern: '['", 4, "sources.orders.pattern: '[' is no regular expression"),
        ("topic: orders", "options: 5", 4, "should be a valid dictionary"),
    ],
)
def test_a_typing_error_is_named_with_its_line(right: str, wrong: str, line: int, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        spec_yaml.load_text(GOOD.replace(right, wrong, 1), "p.yml")
    assert str(caught.value).startswith(f"p.yml:{line}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_three_forms_give_the_same_pipeline() -> None:
    yaml, sql, python = (load(EXAMPLES / name) for name in ("clean-orders.yml", "clean-orders.sql", "clean_orders.py"))
    assert yaml.sources == sql.sources == python.sources
    assert yaml.sinks == sql.sinks == python.sinks
    assert yaml.trigger == sql.trigger == python.trigger
    assert [item.action for item in yaml.expectations] == [item.action for item in python.expectations]
    assert list(yaml.views) == list(sql.views) == list(python.views) == ["clean"]
    assert "def clean(orders)" in next(iter(python.modules.values()))


def test_every_example_is_valid() -> None:
    files = [
        path for path in EXAMPLES.iterdir() if path.suffix in (".yml", ".sql", ".py") and ".cases" not in path.name
    ]
    assert len(files) >= 20
    for path in files:
        load(path)


def test_sql_errors_name_their_line() -> None:
    with pytest.raises(SpecError, match=r"^p\.sql:2: 'CREATE TABLE x' is none of SET"):
        spec_sql.load_text("SET name = 'a';\nCREATE TABLE x;", "p.sql")
    with pytest.raises(SpecError, match=r"^p\.sql:2: .*did you mean 'topic'"):
        spec_sql.load_text(
            "-- a comment; here\nCREATE SOURCE o WITH (topik = 'o');\nCREATE SINK s FROM o WITH (topic = 'x')",
            "p.sql",
        )


def test_a_python_pipeline_complains_about_a_view_nobody_declared() -> None:
    pipeline = Pipeline("p")
    pipeline.source("orders", topic="orders")
    pipeline.sink("out", "cleen", topic="out")
    with pytest.raises(SpecError, match="there is no view or source 'cleen'"):
        pipeline.spec()


def test_secrets_are_looked_up_late_and_never_shown(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("from a file\n")
    told = {"password": "${env:NAME}", "other": [f"${{file:{tmp_path / 'password'}}}"]}
    assert resolve(told, {"NAME": "x"}) == {"password": "x", "other": ["from a file"]}
    assert list(plain_secrets(told)) == []
    assert list(plain_secrets({"sinks": {"out": {"password": "hunter2"}}})) == [("sinks", "out", "password")]
    with pytest.raises(SecretError, match="the environment variable NAME is not set"):
        resolve("${env:NAME}", {})


def test_a_password_inside_a_connection_string_is_one_in_plain_text() -> None:
    def found(dsn: str, section: str = "sinks") -> bool:
        return bool(list(plain_secrets({section: {"db": {"options": {"dsn": dsn}}}})))

    assert found("postgresql://me:hunter2@host/db") and found("host=h user=me password=hunter2")
    assert found("jdbc:mysql://host/db?user=me&password=hunter2")
    assert not found("postgresql://me@host/db") and not found("postgresql://me:${env:PASSWORD}@host/db")
    assert not found("host=h password=${env:PASSWORD}")
    assert not found("SELECT 1 WHERE password = 'x'", "views")


def test_a_runner_looks_up_only_what_it_was_told_to(tmp_path: Path) -> None:
    inside, outside = tmp_path / "secrets", tmp_path / "passwd"
    inside.mkdir()
    (inside / "db").write_text("hunter2\n")
    outside.write_text("root")
    try:
        allow(Allowed(env_prefix="PENSTOCK_", folder=str(inside)))
        assert resolve(f"${{env:PENSTOCK_X}} ${{file:{inside}/db}}", {"PENSTOCK_X": "value"}) == "value hunter2"
        for refused in ("${env:HOME}", f"${{file:{outside}}}", f"${{file:{inside}/../passwd}}"):
            with pytest.raises(SecretError, match=r"this runner looks up .* only"):
                resolve(refused, {"HOME": "/"})
        allow(Allowed(env_prefix="PENSTOCK_", folder=None))
        with pytest.raises(SecretError, match="no folder only"):
            resolve(f"${{file:{inside}/db}}")
    finally:
        allow(Allowed())
    assert redacted("cannot log in with hunter2") == "cannot log in with (secret)"
    key = {"KEY": "-----BEGIN KEY-----\nMIIEvQIBADANBg\n{\n"}
    assert resolve("${env:KEY}", key) == key["KEY"]
    assert redacted("line 2: MIIEvQIBADANBg, {") == "line 2: (secret), {"  # logs come line by line


def test_sql_may_not_refer_to_a_secret() -> None:
    data = {
        "name": "p",
        "sources": {"o": {"topic": "o"}},
        "views": {"v": "SELECT '${env:TOKEN}' AS token FROM o"},
        "sinks": {"out": {"from": "v", "topic": "out"}},
    }
    with pytest.raises(SpecError, match=r"views\.v: a secret in SQL would end in plans and rows"):
        from_data(data)


@pytest.mark.parametrize("begin", ["2026-11-01T12:00:00Z", datetime(2026, 11, 1, 12), 1793534400000])
def test_a_pipeline_may_start_at_a_time(begin: Any) -> None:
    options = TopicSource.Options.model_validate({"topic": "o", "starting": begin})
    source = TopicSource("o", options, Context(None, "p", {}, LocalStorage("nowhere")))
    assert source._start()["startingTimestamp"] == "1793534400000"


class Asked:
    """Stands for a cluster of some brokers without topics; remembers what it is asked to create."""

    def __init__(self, brokers: int) -> None:
        self._view = ClusterView(brokers={n: BrokerAddress(n, "h", 1, None) for n in range(brokers)})
        self.copies: list[int] = []

    async def metadata(self, topics: Any) -> ClusterView:
        return self._view

    async def call_controller(self, name: str, request: Any) -> Any:
        self.copies.append(request.topics[0].replication_factor)
        return SimpleNamespace(topics=[SimpleNamespace(error_code=0)])

    async def leader_connection(self, topic: str, partition: int) -> None:
        return


@pytest.mark.parametrize(("brokers", "copies"), [(1, 1), (2, 2), (3, 3), (5, 3)])
def test_topics_of_our_own_get_three_copies_where_they_can(brokers: int, copies: int) -> None:
    cluster: Any = Asked(brokers)
    asyncio.run(ensure_topic(cluster, "__penstock_sinks", internal=True))
    asyncio.run(ensure_topic(cluster, "letters"))
    assert cluster.copies == [copies, -1]
