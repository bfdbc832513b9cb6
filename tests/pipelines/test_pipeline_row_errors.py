"""A row that makes a step raise goes to the dead letters by itself, with step and expression; no error is NULL."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from penstock.pipelines.connectors.base import Batch, Sink
from penstock.pipelines.execution import Execution, PipelineFailed, Place, run
from penstock.pipelines.formats.dead_letters import EXPECTATION, EXPRESSION, OFFSET, QUERY, STEP, TOPIC
from penstock.pipelines.isolation import ErrorRate, TooManyErrors, blamed, ranges_of
from penstock.pipelines.plan import queries
from penstock.pipelines.problems import reason_of
from penstock.pipelines.spec import Frozen, PipelineSpec, SpecError, from_data

ROWS = [{"id": n, "amount": "x" if n % 4 == 3 else None if n == 5 else str(n), "by": n % 5} for n in range(20)]
FORM = {"type": "json", "schema": "id INT, amount STRING, `by` INT"}


def pipeline(topic: str, views: dict[str, Any], sinks: dict[str, Any], **more: Any) -> PipelineSpec:
    data = {"name": f"p-{uuid.uuid4().hex[:6]}", "views": views, "sinks": sinks, **more}
    return from_data({**data, "sources": {"orders": {"topic": topic, "format": FORM}}})


# --- pure ---


def test_errors_are_counted_over_the_last_rows_and_a_repeated_batch_once() -> None:
    rate = ErrorRate(limit=0.1, window=100)
    rate.take(0, 50, 10)  # ten of the last hundred: not more than a tenth
    with pytest.raises(TooManyErrors, match="11 of the last 100 rows"):
        rate.take(1, 10, 1)
    rate.take(1, 10, 0)  # repaired, it comes again
    rate.take(2, 100, 9)  # and the first ten are long ago
    with pytest.raises(TooManyErrors):
        rate.take(3, 1, 2)
    ErrorRate(limit=None, window=10).take(0, 10, 10)


def test_the_range_of_a_batch_is_what_spark_noted_before_it() -> None:
    spec = pipeline("orders", {}, {"out": {"from": "orders", "topic": "o"}})
    notes = {
        0: 'v1\n{}\n{"orders":{"0":5,"1":7},"#ids":{},"#from":{"orders":{"0":2,"1":0}}}',
        1: 'v1\n{}\n{"orders":{"0":9,"1":7},"p.retry":{"0":1},"#ids":{},"#from":{"p.retry":{"0":0}}}',
    }
    query = queries(spec)[0]
    first = ranges_of(spec, query, notes.get, 0, "p.retry")["orders"]
    assert first == ({("orders", 0): 2, ("orders", 1): 0}, {("orders", 0): 5, ("orders", 1): 7})
    begin, end = ranges_of(spec, query, notes.get, 1, "p.retry")["orders"]
    assert begin == {("orders", 0): 5, ("orders", 1): 7, ("p.retry", 0): 0} and end[("orders", 0)] == 9


def test_the_step_is_named_by_what_spark_marks() -> None:
    spec = pipeline("t", {"doubled": "SELECT 10/`by` AS x\nFROM orders"}, {"out": {"from": "doubled", "topic": "o"}})
    marked = "== SQL (line 1, position 8) ==\nSELECT 10/`by` AS x\n       ^^^^^^^\n"
    text = f"[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\n{marked}"
    assert blamed(Exception(text), spec) == "view doubled, 10/`by`: "


def test_what_stops_a_batch_is_said_in_one_line() -> None:
    proxy = (
        "An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):\n  File x\n"
    )
    told = reason_of(Exception(f"{proxy}penstock.pipelines.isolation.TooManyErrors: 5 of the last 20 rows\n"))
    assert told == "TooManyErrors: 5 of the last 20 rows"


def test_errors_as_null_are_refused() -> None:
    sinks = {"out": {"from": "orders", "topic": "o"}}
    with pytest.raises(SpecError, match=r"settings.spark.spark.sql.ansi.enabled: without it an error .* gives NULL"):
        pipeline("t", {}, sinks, settings={"spark": {"spark.sql.ansi.enabled": "False"}})
    pipeline("t", {}, sinks, settings={"spark": {"spark.sql.ansi.enabled": "true"}})


# --- on Spark ---


@pytest.fixture
def place(broker: Any, tmp_path: Path) -> Place:
    return Place({"bootstrap.servers": broker.bootstrap}, str(tmp_path / "state"))


@pytest.fixture
def orders(new_topic: Callable[..., str], produce: Callable[..., None]) -> str:
    topic = new_topic(partitions=1, label="orders")
    produce(topic, [(str(row["id"]), json.dumps(row)) for row in ROWS])
    return topic


@pytest.mark.spark
def test_rows_that_raise_go_aside_and_the_others_on(
    spark: Any, place: Place, orders: str, new_topic: Callable[..., str], read_topic: Callable[..., Any]
) -> None:
    out, total = new_topic(label="out"), new_topic(label="total")
    views = {
        # A cast that raises at x, a filter that raises at 0, and NULL that stays NULL.
        "numbers": "SELECT id, `by`, cast(amount AS INT) AS amount, _topic, _partition, _offset FROM orders",
        "kept": "SELECT * FROM numbers WHERE 100 / `by` > 30",
        "totals": "SELECT `by`, sum(cast(amount AS INT)) AS total FROM orders GROUP BY `by`",
    }
    sinks = {
        "out": {"from": "kept", "topic": out, "key": "cast(100 / (id - 2) AS INT)"},
        "sums": {"from": "totals", "topic": total, "key": "`by`", "output_mode": "update"},
    }
    spec = pipeline(orders, views, sinks)
    run(spec, spark, place, until_caught_up=True)
    good = [row for row in ROWS if row["amount"] != "x"]
    kept = [row for row in good if 0 < row["by"] <= 3 and row["id"] != 2]
    number = {row["id"]: None if row["amount"] is None else int(row["amount"]) for row in good}
    written = [json.loads(message.value()) for message in read_topic(out)]
    assert sorted((row["id"], row["amount"]) for row in written) == [(row["id"], number[row["id"]]) for row in kept]
    sums = {row["by"]: row["total"] for row in (json.loads(message.value()) for message in read_topic(total))}
    assert sums == {by: sum(number[row["id"]] or 0 for row in good if row["by"] == by) for by in range(5)}
    told: dict[str, list[int]] = {}
    for message in read_topic(spec.dead_letter_topic):
        headers = dict(message.headers())
        row = json.loads(message.value())
        told.setdefault(headers[STEP].decode(), []).append(row["id"])
        assert headers[EXPRESSION] and b"raised an error in" in headers["penstock.dlq.reason"]
        assert headers[TOPIC].decode() == orders and int(headers[OFFSET]) == row["id"]
    assert {step: sorted(ids) for step, ids in told.items()} == {
        "view numbers": [3, 7, 11, 15, 19],
        "view kept": [0, 5, 10],
        "sink out": [2],
        "view totals": [3, 7, 11, 15, 19],
    }
    # A run that has nothing new adds nothing.
    run(spec, spark, place, until_caught_up=True)
    assert len(read_topic(out)) == len(kept)


@pytest.mark.spark
def test_too_many_errors_stop_the_batch_before_anything_is_written(
    spark: Any, place: Place, orders: str, new_topic: Callable[..., str], read_topic: Callable[..., Any]
) -> None:
    out = new_topic(label="out")
    views = {"numbers": "SELECT id, cast(amount AS INT) AS amount FROM orders"}
    sinks = {"out": {"from": "numbers", "topic": out}}
    settings = {"max_error_rate": 0.2, "error_window": 20}
    with pytest.raises(PipelineFailed, match="5 of the last 20 rows made a step raise"):
        run(pipeline(orders, views, sinks, settings=settings), spark, place, until_caught_up=True)
    strict = {"on_row_error": "fail"}
    with pytest.raises(PipelineFailed, match=r"view numbers, cast\(amount AS INT\): .*cannot be cast"):
        run(pipeline(orders, views, sinks, settings=strict), spark, place, until_caught_up=True)
    assert read_topic(out) == []


@pytest.mark.spark
def test_a_condition_that_raises_is_neither_met_nor_unmet(
    spark: Any, place: Place, orders: str, new_topic: Callable[..., str], read_topic: Callable[..., Any]
) -> None:
    out = new_topic(label="out")
    views = {"plain": "SELECT id, `by`, amount, _topic, _partition, _offset FROM orders"}
    expectations = [
        {"view": "orders", "condition": "cast(amount AS INT) >= 2", "name": "enough", "action": "dead-letter"},
        {"view": "plain", "condition": "20 / `by` > 6", "name": "few", "action": "drop"},
        {"view": "plain", "condition": "100 / (id - 16) < 1000", "name": "far", "action": "fail"},
    ]
    spec = pipeline(orders, views, {"out": {"from": "plain", "topic": out}}, expectations=expectations)
    run(spec, spark, place, until_caught_up=True)
    told: dict[str, list[int]] = {}
    for message in read_topic(spec.dead_letter_topic):
        headers = dict(message.headers())
        who = headers.get(STEP, headers.get(EXPECTATION)).decode()
        told.setdefault(who, []).append(json.loads(message.value())["id"])
    # Rows in are rows out, filtered, or letters; NULL is not met, an error is said to be one.
    raised = {row["id"] for row in ROWS if row["amount"] == "x"}
    unmet = {0, 1, 5}
    rest = [row for row in ROWS if row["id"] not in raised | unmet]
    assert {who: sorted(ids) for who, ids in told.items()} == {
        "expectation 'enough' of orders": sorted(raised),
        "enough": sorted(unmet),
        "expectation 'few' of plain": [row["id"] for row in rest if row["by"] == 0],
        "expectation 'far' of plain": [16],
    }
    written = sorted(json.loads(message.value())["id"] for message in read_topic(out))
    assert written == [row["id"] for row in rest if 0 < row["by"] <= 3 and row["id"] != 16]


@pytest.mark.spark
def test_each_query_accounts_for_its_rows_however_equal_they_are_and_whatever_others_need(
    spark: Any,
    place: Place,
    orders: str,
    new_topic: Callable[..., str],
    produce: Callable[..., None],
    read_topic: Callable[..., Any],
) -> None:
    # Given rows that are the same three times and raise, in a view of which the first query needs nothing that raises,
    produce(orders, [json.dumps(ROWS[3])] * 2)
    ids, numbers, totals = (new_topic(partitions=1, label=name) for name in ("ids", "numbers", "totals"))
    views = {
        "plain": "SELECT id, amount, `by` FROM orders",
        "numbers": "SELECT id, cast(amount AS INT) AS amount FROM plain",
        "ids": "SELECT id FROM numbers",
        # A condition that raises, and an argument that is computed only where the condition holds.
        "totals": "SELECT 1 AS k, count(*) FILTER (WHERE 10 / `by` > 4) AS few,"
        " sum(100 / `by`) FILTER (WHERE `by` > 1) AS many FROM plain",
    }
    sinks = {
        "ids": {"from": "ids", "topic": ids},
        "numbers": {"from": "numbers", "topic": numbers},
        "totals": {"from": "totals", "topic": totals, "output_mode": "update"},
    }
    spec = pipeline(orders, views, sinks)
    run(spec, spark, place, until_caught_up=True)
    told: dict[str, list[int]] = {"ids": []}
    for message in read_topic(spec.dead_letter_topic):
        told.setdefault(dict(message.headers())[QUERY].decode(), []).append(json.loads(message.value())["id"])
    # then each query has written a row or told of it, as often as it came.
    every = sorted([*range(20), 3, 3])
    assert sorted(told["numbers"]) == [3, 3, 3, 7, 11, 15, 19]
    assert sorted([*told["numbers"], *(json.loads(row.value())["id"] for row in read_topic(numbers))]) == every
    # This one computes nothing that raises: it lacks nothing, before guards came and after.
    assert not told["ids"] and sorted(json.loads(row.value())["id"] for row in read_topic(ids)) == every
    assert sorted(told["totals"]) == [0, 5, 10, 15]
    by = [row["by"] for row in [*ROWS, ROWS[3], ROWS[3]] if row["by"]]
    last = json.loads(read_topic(totals)[-1].value())
    assert last["few"] == sum(10 / n > 4 for n in by)
    assert last["many"] == pytest.approx(sum(100 / n for n in by if n > 1))


class Waiting(Sink):
    """Before its first batch: until another query is done, whose last batch Spark then has to repeat."""

    class Options(Frozen):
        commit: str

    others: ClassVar[dict[str, Any]] = {}

    def write(self, rows: Any, batch: Batch) -> None:
        commit = Path(self.options.commit)
        others = [query for name, query in self.others.items() if name != self.name]
        self.others.clear()
        for query in others:
            query.awaitTermination()
            commit.unlink()
            commit.with_name(f".{commit.name}.crc").unlink()
        rows.collect()


@pytest.mark.spark
def test_a_batch_that_was_written_before_guards_came_gets_no_letters(
    spark: Any,
    place: Place,
    orders: str,
    new_topic: Callable[..., str],
    read_topic: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ids, name = new_topic(label="ids"), f"p-{uuid.uuid4().hex[:6]}"
    views = {"shares": "SELECT id, 100 / `by` AS share FROM orders", "ids": "SELECT id FROM shares"}
    commit = f"{place.state_folder}/{name}/checkpoints/ids/commits/0"
    waiting = {"from": "shares", "connector": f"{__name__}:Waiting", "options": {"commit": commit}}
    spec = pipeline(orders, views, {"ids": {"from": "ids", "topic": ids}, "shares": waiting}, name=name)
    begin = Execution._start_query

    def before_shares(self: Execution, item: Any, until_caught_up: bool) -> None:
        if item.query.name == "shares" and self._isolation is None:
            Waiting.others.update(self.running)
        begin(self, item, until_caught_up)

    monkeypatch.setattr(Execution, "_start_query", before_shares)
    run(spec, spark, place, until_caught_up=True)
    assert sorted(json.loads(message.value())["id"] for message in read_topic(ids)) == list(range(20))
    told = [(dict(m.headers())[QUERY], json.loads(m.value())["id"]) for m in read_topic(spec.dead_letter_topic)]
    assert sorted(told) == [(b"shares", number) for number in (0, 5, 10, 15)]


@pytest.mark.spark
def test_a_row_that_meets_no_expectation_and_cannot_be_computed_either_is_told_of(
    spark: Any,
    place: Place,
    orders: str,
    new_topic: Callable[..., str],
    read_topic: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Given that the dead letters' query, which shows all columns of a row, comes last: the other one is past that row,
    out = new_topic(label="out")
    begin = Execution._start_query

    def after_the_others(self: Execution, item: Any, until_caught_up: bool) -> None:
        for query in self.running.values():
            while query.isActive:
                time.sleep(0.05)
        begin(self, item, until_caught_up)

    monkeypatch.setattr(Execution, "_start_query", after_the_others)
    views = {"shares": "SELECT id, `by`, 100 / `by` AS share FROM orders"}
    expected = [{"view": "shares", "condition": "`by` <> 0", "action": "dead-letter"}]
    spec = pipeline(orders, views, {"out": {"from": "shares", "topic": out}}, expectations=expected)
    run(spec, spark, place, until_caught_up=True)
    # then every row is in one place.
    written = [json.loads(message.value())["id"] for message in read_topic(out)]
    told = [json.loads(message.value())["id"] for message in read_topic(spec.dead_letter_topic)]
    assert sorted(told) == [0, 5, 10, 15] and sorted([*written, *told]) == list(range(20))
