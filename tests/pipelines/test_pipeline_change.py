"""Change without fear: what a replay writes is compared, readers are re-pointed, offsets go on without state."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from penstock.cli.main import run as penstock
from penstock.client.sync import SyncClient
from penstock.operate.errors import UserError
from penstock.operate.groups import commit_offsets
from penstock.operate.repoint import GroupMove, plan_repoint, repoint
from penstock.operate.session import Session
from penstock.pipelines import ending
from penstock.pipelines.checkpoint import DoesNotFit
from penstock.pipelines.compare import compare
from penstock.pipelines.control import events
from penstock.pipelines.control.store import PipelineStore
from penstock.pipelines.execution import Execution, Place, run
from penstock.pipelines.spec import PipelineSpec, SpecError, from_data


def commit(bootstrap: str, group: str, topic: str, offsets: dict[int, int]) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    places = [TopicPartition(topic, index, offset) for index, offset in offsets.items()]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def committed(bootstrap: str, group: str, topic: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    found = consumer.committed([TopicPartition(topic, index) for index in range(2)], timeout=30)
    consumer.close()
    return {item.partition: item.offset for item in found}


def test_a_replay_is_compared_key_by_key(
    broker: Any, new_topic: Callable[..., str], produce: Callable[..., None], capsys: Any
) -> None:
    # Given the same records of a, others of b, and c and d in only one of two topics; and records without key,
    old, new = new_topic(label="old"), new_topic(label="new", partitions=3)
    produce(old, [("a", "1"), ("a", "2"), ("b", "1"), ("b", "1"), ("c", "1"), "x", "y"])
    produce(new, [("a", "2"), ("a", "1"), ("b", "1"), ("b", "3"), ("d", "1"), "y", "x"])
    with SyncClient(broker.bootstrap) as client:
        found = compare(client, old, new)
        assert (found.records, found.keys) == ((7, 7), (4, 4))
        assert (found.only_before, found.only_after, found.differing, found.is_equal) == (1, 1, 1, False)
        told = {item.key: (item.kind, item.before, item.after) for item in found.first}
        assert told == {
            "b": ("other values", "1, 1", "1, 3"),
            "c": (f"only in {old}", "1", ""),
            "d": (f"only in {new}", "", "1"),
        }
        # As tables, a differs as well; a key that was deleted is none.
        assert compare(client, old, new, newest_only=True).differing == 2
        produce(old, [("c", None)])
        produce(new, [("d", None)])
        assert compare(client, old, new, newest_only=True, most=0).only_before == 0
        assert compare(client, old, old).is_equal
    there = ["-b", broker.bootstrap]
    assert penstock(["pipeline", "compare", old, old, *there]) == 0
    assert "the same" in capsys.readouterr().out
    assert penstock(["pipeline", "compare", old, new, "--json", *there]) == 1
    assert json.loads(capsys.readouterr().out)["differing"] == 1
    assert penstock(["pipeline", "compare", old, "nobody-made-this", *there]) == 4


def test_a_pipeline_and_whoever_reads_it_are_re_pointed_together(
    broker: Any, new_topic: Callable[..., str], produce: Callable[..., None], capsys: Any
) -> None:
    # Given a pipeline, one that reads what it writes, one that does not, and two groups outside,
    out = new_topic(label="out")
    replayed = new_topic(name=f"{out}.v2")
    mark = uuid.uuid4().hex[:6]
    there = ["-b", broker.bootstrap]
    produce(out, [(f"k{number}", "v") for number in range(10)])
    produce(replayed, [(f"k{number}", "w") for number in range(10)] + [("more", "w")])
    with SyncClient(broker.bootstrap) as client:
        store = PipelineStore(client)

        def applied(name: str, source: str, sink: str) -> PipelineSpec:
            spec = from_data(
                {
                    "name": f"{name}-{mark}",
                    "sources": {"s": {"topic": source, "format": {"type": "json", "schema": "id INT"}}},
                    "sinks": {"o": {"from": "s", "topic": sink}},
                }
            )
            store.apply(spec)
            return spec

        writer = applied("writer", "orders", out)
        reader, other = applied("reader", out, "elsewhere"), applied("other", "orders", "elsewhere")
        assert penstock(["pipeline", "repoint", writer.name, "--suffix", ".v2", "--yes", *there]) != 0
        assert f"penstock pipeline stop {writer.name}" in capsys.readouterr().err  # it runs
        for spec in (writer, reader):
            assert penstock(["pipeline", "stop", spec.name, *there]) == 0
        events.ensure(client)
        driver = events.PlainWriter({"bootstrap.servers": broker.bootstrap})
        for state in ("running", "stopped"):  # a batch may be on its way until the driver says that it has stopped
            driver.write(reader.name, events.STATE, state=state)
            driver.close()
            if state == "running":
                assert penstock(["pipeline", "repoint", writer.name, "--suffix", ".v2", "--yes", *there]) != 0
                assert f"{reader.name} has not come to rest yet" in capsys.readouterr().err
        with SyncClient(broker.bootstrap) as asking:
            keys = {(out, index): -1 for index in range(2)} | {(replayed, index): -1 for index in range(2)}
            ends = {key: answer.offset for key, answer in asking.list_offsets(keys).items()}
        here = {index: ends[out, index] for index in range(2)}
        commit(broker.bootstrap, f"penstock.{reader.name}", out, {0: here[0], 1: 0})
        commit(broker.bootstrap, f"up-to-date-{mark}", out, here)
        commit(broker.bootstrap, f"behind-{mark}", out, {0: 0, 1: here[1]})
        capsys.readouterr()
        # when the reader has something left it is refused, and nothing is changed;
        assert penstock(["pipeline", "repoint", writer.name, "--suffix", ".v2", "--yes", *there]) != 0
        assert f"{reader.name} has not read {here[1]} records" in capsys.readouterr().err
        commit(broker.bootstrap, f"penstock.{reader.name}", out, here)
        assert penstock(["pipeline", "repoint", writer.name, "--suffix", ".v2", "--dry-run", *there]) == 0
        shown = capsys.readouterr().out
        assert f"not moved: {here[0]} records left" in shown and f"up-to-date-{mark}" in shown
        assert store.all()[writer.name].parsed().sinks["o"].options["topic"] == out
        # interrupted at a group, it has left the writer for the end, so that it can be repeated;
        session = Session(broker.bootstrap, None, None)
        plan = plan_repoint(session, writer.name, ".v2")
        plan.begins, plan.groups = {}, [GroupMove("g", f"no-{out}", {(f"no-{out}", 0): 1}, 0)]
        with pytest.raises(UserError):
            repoint(session, plan, groups=True)
        assert store.all()[writer.name].parsed().sinks["o"].options["topic"] == out
        # then both change at once, the reader begins at the new topic's end, and so does the group that had read all.
        assert penstock(["pipeline", "repoint", writer.name, "--suffix", ".v2", "--groups", "--yes", *there]) == 0
        now = store.all()
        assert now[writer.name].parsed().sinks["o"].options["topic"] == replayed and now[writer.name].reset is None
        assert now[reader.name].parsed().sources["s"].options["topic"] == replayed
        assert now[reader.name].discard_state and now[reader.name].begin == {
            replayed: {str(index): ends[replayed, index] for index in range(2)}
        }
        assert now[other.name].generation == 1
        assert {now[spec.name].desired for spec in (writer, reader)} == {"running"}
    assert committed(broker.bootstrap, f"up-to-date-{mark}", replayed) == {
        index: ends[replayed, index] for index in range(2)
    }
    assert set(committed(broker.bootstrap, f"behind-{mark}", replayed).values()) == {-1001}
    for spec in (writer, reader, other):
        assert penstock(["pipeline", "delete", spec.name, "--yes", *there]) == 0


@pytest.mark.parametrize("survived", range(4))
def test_re_pointing_that_ends_after_any_of_its_writes_is_completed_by_a_repetition(
    survived: int,
    broker: Any,
    new_topic: Callable[..., str],
    produce: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Given a writer, two readers and a group outside, all at the end of what was written,
    out = new_topic(label="out")
    replayed = new_topic(name=f"{out}.v2")
    produce(out, ["{}"] * 3, partition=0)
    produce(replayed, ["{}"] * 5, partition=0)
    mark, there = uuid.uuid4().hex[:6], ["-b", broker.bootstrap]
    names = [f"{name}-{mark}" for name in ("writer", "one", "two")]
    with SyncClient(broker.bootstrap) as client:
        store = PipelineStore(client)
        for name, source, sink in zip(names, ("orders", out, out), (out, "a", "b"), strict=True):
            sources = {"s": {"topic": source, "format": {"type": "json", "schema": "id INT"}}}
            store.apply(from_data({"name": name, "sources": sources, "sinks": {"o": {"from": "s", "topic": sink}}}))
            assert penstock(["pipeline", "stop", name, *there]) == 0
        for group in (f"penstock.{names[1]}", f"penstock.{names[2]}", f"outside-{mark}"):
            commit(broker.bootstrap, group, out, {0: 3, 1: 0})
        # when it is cut off after some of what it writes, then repeated,
        written = 0

        def counted(write: Callable[..., Any]) -> Callable[..., Any]:
            def attempt(*arguments: Any, **more: Any) -> Any:
                nonlocal written
                if written == survived:
                    raise KeyboardInterrupt
                written += 1
                return write(*arguments, **more)

            return attempt

        session = Session(broker.bootstrap, None, None)
        with monkeypatch.context() as patch:
            patch.setattr(PipelineStore, "apply", counted(PipelineStore.apply))
            patch.setattr("penstock.operate.repoint.commit_offsets", counted(commit_offsets))
            with pytest.raises(KeyboardInterrupt):
                repoint(session, plan_repoint(session, names[0], ".v2"), groups=True)
        repoint(session, plan_repoint(session, names[0], ".v2"), groups=True)
        # then all are where they would be.
        now = store.all()
        assert now[names[0]].parsed().sinks["o"].options["topic"] == replayed and now[names[0]].generation == 3
        for name in names[1:]:
            assert now[name].parsed().sources["s"].options["topic"] == replayed and now[name].discard_state
            assert now[name].begin == {replayed: {"0": 5, "1": 0}} and now[name].generation == 3
        assert committed(broker.bootstrap, f"outside-{mark}", replayed) == {0: 5, 1: 0}
        for name in names:
            assert penstock(["pipeline", "delete", name, "--yes", *there]) == 0


@pytest.mark.spark
def test_a_changed_pipeline_goes_on_at_its_offsets_without_its_state(
    spark: Any,
    broker: Any,
    new_topic: Callable[..., str],
    produce: Callable[..., None],
    read_topic: Callable[..., Any],
    tmp_path: Path,
) -> None:
    orders, out = new_topic(label="orders"), new_topic(partitions=1, label="out")
    name = f"p-{uuid.uuid4().hex[:6]}"
    place = Place({"bootstrap.servers": broker.bootstrap}, str(tmp_path))
    client = place.client(_sums(name, orders, out, "country"))

    def rows() -> list[tuple[str, int]]:
        made = [json.loads(message.value()) for message in read_topic(out)]
        return sorted((row["k"], row["total"]) for row in made)

    # Given sums by country,
    produce(orders, [json.dumps({"country": "x", "city": city, "n": 1}) for city in ("a", "a", "b")])
    run(_sums(name, orders, out, "country"), spark, place, until_caught_up=True)
    assert rows() == [("x", 3)]
    # when they become sums by city, the checkpoint does not fit, and the ways out are named;
    by_city = _sums(name, orders, out, "city")
    state = place.state_of(by_city, spark)
    with pytest.raises(DoesNotFit, match="--discard-state to go on where it was without its state"):
        Execution.prepare(by_city, spark, place, keep=False)
    # a batch that is not finished cannot be left,
    (tmp_path / name / "checkpoints" / "out" / "commits" / "0").rename(tmp_path / "0")
    with pytest.raises(SpecError, match="batch 0 of 'out' is not finished"):
        ending.discard_state(client, name, state)
    (tmp_path / "0").rename(tmp_path / name / "checkpoints" / "out" / "commits" / "0")
    # and discarding it, interrupted right after it had begun, is finished by the next start:
    state.begin_discarding(state.positions())
    produce(orders, [json.dumps({"country": "x", "city": city, "n": 10}) for city in ("a", "c")])
    run(by_city, spark, place, until_caught_up=True)
    # then only what is new is counted, from nothing.
    assert rows() == [("a", 10), ("c", 10), ("x", 3)]
    assert ending.discard_state(client, name, state) == ["Aggregate by city of sum(n)"]
    produce(orders, [json.dumps({"country": "x", "city": "a", "n": 100})])
    run(by_city, spark, place, until_caught_up=True)
    assert rows() == [("a", 10), ("a", 100), ("c", 10), ("x", 3)]


def _sums(name: str, topic: str, out: str, key: str) -> PipelineSpec:
    return from_data(
        {
            "name": name,
            "sources": {
                "orders": {"topic": topic, "format": {"type": "json", "schema": "country STRING, city STRING, n INT"}}
            },
            "views": {"sums": f"SELECT {key} AS k, sum(n) AS total FROM orders GROUP BY {key}"},
            "sinks": {"out": {"from": "sums", "topic": out, "key": "k", "output_mode": "update"}},
        }
    )
