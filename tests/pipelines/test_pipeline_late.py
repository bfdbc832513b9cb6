"""Late rows: what a step drops and nothing else goes to a topic, over restarts and repeated batches, and is counted."""

from __future__ import annotations

import collections
import json
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from penstock.pipelines.execution import Execution, Place, run
from penstock.pipelines.spec import SpecError, from_data

FORMAT = {"type": "json", "schema": "id INT, at TIMESTAMP"}
CLOSING = 9_999  # the seconds of a row that moves the watermark past everything before it


def row(number: int, seconds: int) -> str:
    return json.dumps(
        {"id": number, "at": f"2026-01-01T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}Z"}
    )


def ids(messages: Iterable[Any]) -> list[int]:
    return [json.loads(message.value())["id"] for message in messages]


class Story:
    """A pipeline and what it reads and writes."""

    def __init__(self, spark: Any, broker: Any, state: Path, read_topic: Callable[..., Any], **parts: Any) -> None:
        self.spark, self.read_topic, self.state = spark, read_topic, state
        self.name = f"late-{uuid.uuid4().hex[:6]}"
        self.place = Place({"bootstrap.servers": broker.bootstrap}, str(state))
        self.spec = from_data({"name": self.name, **parts})
        self.told: dict[str, int] = {}

    def run(self) -> None:
        def tell(query: str, progress: Any) -> None:
            self.told[query] = progress.get("late")

        run(self.spec, self.spark, self.place, until_caught_up=True, on_progress=tell)

    def repeat_the_last_batch(self, query: str) -> None:
        """As after a kill between the last word of the sinks and Spark's note of it."""
        commits = self.state / self.name / "checkpoints" / query / "commits"
        newest = max(int(item.name) for item in commits.iterdir() if item.name.isdigit())
        for item in (commits / f"{newest}", commits / f".{newest}.crc"):
            item.unlink(missing_ok=True)

    def late(self) -> dict[str, list[int]]:
        """Query → ids of its late rows."""
        found = collections.defaultdict(list)
        for message in self.read_topic(self.spec.late_topic):
            found[dict(message.headers())["penstock.late.query"].decode()].append(json.loads(message.value())["id"])
        return {query: sorted(numbers) for query, numbers in found.items()}

    def batches(self, query: str, topic: str) -> list[tuple[int, int]]:
        """[first, end) of each batch in the only partition of a topic, as Spark noted them."""
        folder = self.state / self.name / "checkpoints" / query / "offsets"
        ends = []
        for number in sorted(int(item.name) for item in folder.iterdir() if item.name.isdigit()):
            lines = [json.loads(line) for line in (folder / str(number)).read_text().splitlines()[2:]]
            ends.append(next(line[topic]["0"] for line in lines if topic in line))
        return list(zip([0, *ends[:-1]], ends, strict=True))


def expected_late(
    batches: list[dict[str, list[tuple[int, int]]]], delay: int, is_late: Callable[[int, int], bool]
) -> list[int]:
    """Plain Python: source → (id, seconds) of each batch; the slowest source holds the watermark back for all.

    A batch drops by the watermark that was known when the batch before it began.
    """
    newest: dict[str, int] = {}
    watermark, before, late = 0, 0, []
    for batch in batches:
        late += [number for rows in batch.values() for number, at in rows if is_late(at, before)]
        before = watermark
        for source, rows in batch.items():
            newest[source] = max([newest.get(source, 0), *[at for _, at in rows]])
        watermark = max(watermark, min(newest.values()) - delay) if all(newest.values()) else watermark
    return sorted(late)


@pytest.mark.spark
def test_every_row_is_either_in_a_result_or_in_the_topic_of_late_rows(
    spark: Any,
    broker: Any,
    new_topic: Callable[..., str],
    produce: Callable[..., None],
    read_topic: Callable[..., Any],
    tmp_path: Path,
) -> None:
    # Given windows, sliding windows, sessions and a deduplication over one topic, in small batches,
    events = new_topic(partitions=1, label="events")
    kinds = ("tumbling", "sliding", "sessions", "unique")
    outs = {kind: new_topic(partitions=1, label=kind) for kind in kinds}
    collected = "sort_array(collect_list(id)) AS ids"
    views: dict[str, Any] = {
        "marked": {"sql": "SELECT *, 'x' AS k FROM events", "watermark": {"column": "at", "delay": "30 seconds"}},
        "plain": "SELECT *, 'x' AS k FROM events",
        "tumbling": f"SELECT window.start AS start, {collected} FROM marked GROUP BY window(at, '1 minute')",
        "sliding": f"SELECT window.start AS s, {collected} FROM marked GROUP BY window(at, '1 minute', '20 seconds')",
        "sessions": {
            "operator": "sessions", "from": "plain", "key": ["k"], "time": "at", "gap": "7 seconds",
            "lateness": "30 seconds", "aggregates": {"ids": "sort_array(collect_list(id))"},
        },
        "unique": {"operator": "deduplicate", "from": "events", "key": ["id"], "time": "at", "within": "30 seconds"},
    }  # fmt: skip
    story = Story(
        spark,
        broker,
        tmp_path,
        read_topic,
        sources={"events": {"topic": events, "format": FORMAT, "max_rows_per_trigger": 20}},
        views=views,
        sinks={kind: {"from": kind, "topic": topic} for kind, topic in outs.items()},
        late=True,
    )
    # rows whose time goes on by ten seconds each, but every third is some minutes old,
    times = [number * 10 - (number % 7) * 40 * (number % 3 == 2) + 300 for number in range(60)]
    rows = list(enumerate(times))
    produce(events, [row(number, at) for number, at in rows[:30]])
    story.run()
    # when the pipeline stops, goes on with the rest, and repeats what it was not sure of,
    produce(events, [row(number, at) for number, at in rows[30:]])
    story.run()
    for kind in kinds:
        story.repeat_the_last_batch(kind)
    produce(events, [row(60, CLOSING)])
    story.run()
    # then each row is in a result or late, never both, never lost; as many are counted as there are;
    late = story.late()
    given = set(range(60))
    for kind in kinds:
        found = [json.loads(message.value()) for message in read_topic(outs[kind])]
        on_time = {number for item in found for number in item.get("ids", [item.get("id")])} & given
        assert late[kind], kind
        assert len(late[kind]) == len(set(late[kind])), kind
        assert on_time == given - set(late[kind]), kind
        assert story.told[kind] == len(late[kind]), kind
    # and those are late that a plain computation finds, by the batches that there were.
    rules: dict[str, Callable[[int, int], bool]] = {
        "tumbling": lambda at, mark: at // 60 * 60 + 60 <= mark,
        "sliding": lambda at, mark: at // 20 * 20 + 60 <= mark,
        "sessions": lambda at, mark: at + 7 <= mark,
        "unique": lambda at, mark: at <= mark,
    }
    everything = [*rows, (60, CLOSING)]
    for kind, is_late in rules.items():
        batches = [{"events": everything[first:end]} for first, end in story.batches(kind, events)]
        assert late[kind] == expected_late(batches, 30, is_late), kind


@pytest.mark.spark
def test_the_slower_of_two_sources_decides_what_is_late(
    spark: Any,
    broker: Any,
    new_topic: Callable[..., str],
    produce: Callable[..., None],
    read_topic: Callable[..., Any],
    tmp_path: Path,
) -> None:
    left, right, out = new_topic(partitions=1, label="left"), new_topic(partitions=1, label="right"), new_topic(1)
    watermark = {"column": "at", "delay": "10 seconds"}
    union = "(SELECT id, at, _topic, _offset FROM quick UNION ALL SELECT id, at, _topic, _offset FROM slow)"
    story = Story(
        spark,
        broker,
        tmp_path,
        read_topic,
        sources={
            "quick": {"topic": left, "format": FORMAT, "watermark": watermark},
            "slow": {"topic": right, "format": FORMAT, "watermark": watermark},
        },
        views={
            "both": f"SELECT window.start AS start, sort_array(collect_list(id)) AS ids FROM {union}"
            " GROUP BY window(at, '10 seconds')"
        },
        sinks={"out": {"from": "both", "topic": out}},
        late=f"{out}.late",
    )
    # The quick one is far ahead; of the others, some are late for it, but only a few for both.
    chunks: list[tuple[list[tuple[int, int]], list[tuple[int, int]]]] = [
        ([(0, 1000), (2, 1001)], [(1, 200), (3, 150)]),
        ([(4, 250), (5, 100), (6, 1002)], [(7, 120), (8, 185), (9, 300)]),
        ([(10, 230), (11, 400)], [(12, 280), (13, 279), (14, 310)]),
    ]
    for quick, slow in chunks:
        produce(left, [row(*item) for item in quick])
        produce(right, [row(*item) for item in slow])
        story.run()
        story.repeat_the_last_batch("out")
    ends = ([(20, CLOSING)], [(21, CLOSING)])
    produce(left, [row(*ends[0][0])])
    produce(right, [row(*ends[1][0])])
    story.run()
    late = story.late()["out"]
    found = [json.loads(message.value()) for message in read_topic(out)]
    on_time = {number for item in found for number in item["ids"]}
    assert on_time == set(range(15)) - set(late) and story.told["out"] == len(late) == len(set(late))
    quick_rows = [item for chunk in chunks for item in chunk[0]] + ends[0]
    slow_rows = [item for chunk in chunks for item in chunk[1]] + ends[1]
    ranges = zip(story.batches("out", left), story.batches("out", right), strict=True)
    batches = [{"quick": quick_rows[a:b], "slow": slow_rows[c:d]} for (a, b), (c, d) in ranges]
    assert late == expected_late(batches, 10, lambda at, mark: at // 10 * 10 + 10 <= mark)
    assert late and 4 not in late  # late by the quick source's watermark alone
    # Where each came from is told, so that whoever corrects the result finds the record.
    headers = dict(next(iter(read_topic(f"{out}.late"))).headers())
    assert headers["penstock.late.step"] == b"view both" and headers["penstock.dlq.topic"].decode() in (left, right)
    assert int(headers["penstock.late.time"]) <= int(headers["penstock.late.watermark"])


@pytest.mark.spark
def test_late_is_refused_where_nothing_can_be_late_or_nobody_could_tell(
    spark: Any, broker: Any, new_topic: Callable[..., str], tmp_path: Path, read_topic: Callable[..., Any]
) -> None:
    events = new_topic(label="events")

    def refused(view: Any, **more: Any) -> str:
        source = {"topic": events, "format": FORMAT, **more}
        sinks = {"out": {"from": "it", "topic": new_topic(), "output_mode": "update"}}
        story = Story(
            spark, broker, tmp_path, read_topic, sources={"events": source}, views={"it": view}, sinks=sinks, late=True
        )
        with pytest.raises(SpecError) as caught:
            Execution.prepare(story.spec, spark, story.place, keep=False)
        return str(caught.value)

    watermark = {"column": "at", "delay": "1 second"}
    assert "no step drops rows" in refused("SELECT id FROM events", watermark=watermark)
    assert "no step drops rows" in refused("SELECT id, count(*) AS n FROM events GROUP BY id", watermark=watermark)
    windows = "SELECT window.start AS start, count(*) AS n FROM events WHERE rand() < 2 GROUP BY window(at, '1 minute')"
    assert "gives something else" in refused(windows, watermark=watermark)
