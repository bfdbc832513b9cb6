"""Pipelines of equal surroundings share one warm driver: each by itself, exactly once whatever becomes of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.client.sync import SyncClient
from penstock.pipelines.control import events
from penstock.pipelines.control.drivers import (
    MOST_CRASHES,
    MOST_FAILURES,
    Drivers,
    PipelineRun,
    has_python,
    surroundings,
)
from penstock.pipelines.control.runner import Runner
from penstock.pipelines.control.store import Applied, PipelineStore
from penstock.pipelines.problems import story_of
from penstock.pipelines.sessions import settle_environment
from penstock.pipelines.spec import from_data


def copying(name: str, source: str, target: str, view: str = "SELECT id FROM o") -> dict[str, Any]:
    return {
        "name": name,
        "sources": {"o": {"topic": source, "format": {"type": "json", "schema": "id INT"}}},
        "views": {"v": {"sql": view}},
        "sinks": {"out": {"from": "v", "topic": target, "key": "id"}},
        "trigger": {"interval": "200 ms"},
    }


def wait_for(what: Callable[[], Any], seconds: float = 400) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := what():
            return found
        time.sleep(0.1)
    raise AssertionError("it did not happen in time")


def test_who_shares_a_driver() -> None:
    plain = copying("a", "in", "out")
    assert not has_python(plain) and surroundings(plain) == surroundings(copying("b", "x", "y"))
    for own in (
        {"modules": {"mine": ""}},
        {"views": {"v": {"python": "mine:view"}}},
        {"sinks": {"s": {"from": "o", "connector": "mine:Sink"}}},
    ):
        assert has_python({**plain, **own})
    for settings in ({"master": "local[1]"}, {"spark": {"spark.x": "1"}}, {"kafka": {"sasl.username": "u"}}):
        assert surroundings({**plain, "settings": settings}) != surroundings(plain)
    assert surroundings({**plain, "settings": {"max_rows_per_trigger": 5}}) == surroundings(plain)


def test_a_pipeline_suspected_twice_gets_its_own_driver_and_the_others_start_at_once(tmp_path: Path) -> None:
    told: list[str] = []
    crashes: list[dict[str, Any]] = []
    drivers = Drivers(
        {}, str(tmp_path), lambda event: None, lambda name, line: told.append(line), on_crash=crashes.append
    )
    suspect, other = (PipelineRun(Applied(name, copying(name, "i", "o"), "running", 1, 0), drivers) for name in "ab")
    for run in (suspect, other):  # a driver that somebody kills again and again is nobody's fault
        for _ in range(2 * MOST_CRASHES):
            run.lost_its_driver(-9, is_suspect=True, is_shared=True, others=1)
            run.progressed()
    for _ in range(MOST_CRASHES):
        assert not suspect.is_alone
        suspect.lost_its_driver(5, is_suspect=True, is_shared=True, others=1)
        other.lost_its_driver(5, is_suspect=False, is_shared=True, others=1)
    # A driver that dies says nothing: that its pipeline failed is said for it, so that alerts and status know.
    last = {"pipeline": "a", "kind": "state", "state": "failed", "generation": 1}
    assert crashes[-1].items() >= last.items() and "ended with code 5" in crashes[-1]["error"]
    assert len(crashes) == 2 * 2 * MOST_CRASHES + MOST_CRASHES
    suspect.progressed()
    assert suspect.is_alone and not other.is_alone
    assert sum("it gets a driver of its own" in line for line in told) == 1
    assert suspect._not_before > other._not_before


def test_a_driver_that_dies_now_and_then_does_not_let_its_pipeline_wait_longer_each_time(tmp_path: Path) -> None:
    told: list[str] = []
    drivers = Drivers({}, str(tmp_path), lambda event: None, lambda name, line: told.append(line))
    run = PipelineRun(Applied("a", copying("a", "i", "o"), "running", 1, 0), drivers)
    for progresses in (True, True, True, False, False):
        run.has_progressed = False  # as when it is started
        if progresses:
            run.progressed()
        run.lost_its_driver(-9, is_suspect=True, is_shared=True, others=0)
    waits = [line.rpartition(" in ")[2] for line in told]
    assert waits == ["1 s", "1 s", "1 s", "2 s", "4 s"]


def test_a_driver_that_does_not_stop_is_killed_and_that_is_said_once(tmp_path: Path) -> None:
    told: list[str] = []
    drivers = Drivers({}, str(tmp_path), lambda event: None, lambda name, line: told.append(line))
    run = PipelineRun(Applied("a", copying("a", "i", "o"), "running", 1, 0), drivers)
    run.tick()
    run.ask_to_stop()
    run._stop_deadline = time.monotonic() - 1
    for _ in range(3):  # faster than a process ends
        run.tick()
    run.stop_now()
    assert run.is_over and told == ["it does not stop: its driver is killed"]


def test_a_driver_in_which_all_fail_is_started_anew(tmp_path: Path) -> None:
    drivers = Drivers({}, str(tmp_path), lambda event: None, lambda name, line: None)
    host = drivers._new_host("driver-x", is_shared=True)
    host.guests |= {
        name: PipelineRun(Applied(name, copying(name, "i", "o"), "running", 1, 0), drivers) for name in "ab"
    }
    for _ in range(2 * MOST_FAILURES):  # b may be in the middle of a long batch
        drivers.failed(host, "a")
    with pytest.raises(subprocess.TimeoutExpired):
        host.process._process.wait(0.5)
    drivers.failed(host, "b")
    wait_for(lambda: host.process.code() is not None)


def test_what_sources_put_into_their_shared_environment_is_there_before_they_start(
    spark: Any, broker: Any, new_topic: Any, produce: Any, tmp_path: Path
) -> None:
    """Else two that start at once may leave its count wrong, and every query of the driver fails from then on."""
    entries = settle_environment(spark)
    topic = new_topic()
    produce(topic, [b"x"])
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    stream = spark.readStream.format("penstock").options(**options).load().writeStream.format("noop")
    stream.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start().awaitTermination()
    added = {"SPARK_LOCAL_DIRS", "SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE", "SPARK_PYTHON_RUNTIME"}
    assert set(entries) == {"PYTHONPATH", *added}


def test_the_story_of_a_failure_names_the_cause_behind_not_serializable(
    spark: Any, broker: Any, new_topic: Any
) -> None:
    entries = settle_environment(spark)
    inner = _field(entries, "underlying")
    count, size = _field(inner, "contentSize", is_value=False), len(entries)
    options = {"kafka.bootstrap.servers": broker.bootstrap, "topic": new_topic()}
    count.setInt(inner, size + 1)  # as two threads leave it that add an entry at the same moment
    try:
        with pytest.raises(Exception, match="Task not serializable") as failed:
            spark.range(1).selectExpr("CAST(id AS STRING) AS value").write.format("penstock").options(**options).mode(
                "append"
            ).save()
    finally:
        count.setInt(inner, size)
    assert "Illegal size" in (story_of(failed.value) or "")


def _field(owner: Any, name: str, *, is_value: bool = True) -> Any:
    kind = owner.getClass()
    while kind is not None:
        for field in kind.getDeclaredFields():
            if field.getName().endswith(name):
                field.setAccessible(True)
                return field.get(owner) if is_value else field
        kind = kind.getSuperclass()
    raise AssertionError(f"no field {name}")


def test_a_killed_driver_is_started_again_with_all_that_were_in_it(broker: Any, tmp_path: Path) -> None:
    drivers = Drivers(
        {"bootstrap.servers": broker.bootstrap}, str(tmp_path), lambda event: None, lambda name, line: None
    )
    runs = [PipelineRun(Applied(name, copying(name, "i", "o"), "running", 1, 0), drivers) for name in "ab"]

    def one_driver() -> int | None:
        drivers.tick()
        for run in runs:
            run.tick()
        pids = {run.driver_pid for run in runs}
        return pids.pop() if len(pids) == 1 else None

    first = wait_for(one_driver)
    os.kill(first, signal.SIGKILL)
    second = wait_for(lambda: (pid := one_driver()) and all(run.restarts for run in runs) and pid)
    assert second != first
    for run in runs:
        run.ask_to_stop()
    os.kill(second, signal.SIGKILL)
    wait_for(lambda: one_driver() is None and all(run.is_over for run in runs))
    drivers.end()


@pytest.fixture
def client(broker: Any) -> Iterator[SyncClient]:
    with SyncClient(broker.bootstrap) as made:
        yield made


@pytest.fixture
def runner(broker: Any, tmp_path: Path) -> Iterator[Runner]:
    made = Runner({"bootstrap.servers": broker.bootstrap}, str(tmp_path / "state"))
    stop, ready = threading.Event(), threading.Event()
    thread = threading.Thread(target=made.run, args=(stop.is_set, ready.set))
    thread.start()
    assert ready.wait(60)
    yield made
    stop.set()
    thread.join(120)


class Story:
    """Some copying pipelines, fed and read."""

    def __init__(self, client: SyncClient, new_topic: Any, produce: Any, read_topic: Any, runner: Runner) -> None:
        self.client, self._new_topic, self._produce, self._read = client, new_topic, produce, read_topic
        self.runner, self.topics, self._fed = runner, dict[str, tuple[str, str]](), dict[str, int]()

    def apply(self, view: str = "SELECT id FROM o") -> str:
        name = f"p-{uuid.uuid4().hex[:6]}"
        self.topics[name] = (self._new_topic(label="in"), self._new_topic(label="out"))
        self._fed[name] = 0
        PipelineStore(self.client).apply(from_data(copying(name, *self.topics[name], view)))
        return name

    def feed(self, name: str, count: int) -> None:
        begin = self._fed[name]
        self._produce(self.topics[name][0], [json.dumps({"id": begin + item}).encode() for item in range(count)])
        self._fed[name] += count

    def has_all(self, name: str) -> bool:
        return len(self._read(self.topics[name][1])) >= self._fed[name]

    def written(self, name: str) -> list[int]:
        return sorted(int(message.key()) for message in self._read(self.topics[name][1]))

    def driver_of(self, name: str) -> int | None:
        run = self.runner._runs.get(name)
        return run.driver_pid if run is not None else None

    def delete_all(self) -> None:
        for name in self.topics:
            PipelineStore(self.client).delete(name)


@pytest.fixture
def story(client: SyncClient, new_topic: Any, produce: Any, read_topic: Any, runner: Runner) -> Iterator[Story]:
    made = Story(client, new_topic, produce, read_topic, runner)
    yield made
    made.delete_all()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_three_pipelines_in_one_driver_that_is_killed_write_everything_once(story: Story) -> None:
    names = [story.apply() for _ in range(3)]
    for name in names:
        story.feed(name, 500)
    for name in names:
        wait_for(lambda name=name: story.has_all(name))
    for _ in range(3):
        pids = {story.driver_of(name) for name in names}
        assert len(pids) == 1
        for name in names:
            story.feed(name, 500)
        os.kill(pids.pop() or 0, signal.SIGKILL)
        for name in names:
            story.feed(name, 500)
        for name in names:
            wait_for(lambda name=name: story.has_all(name))
    for name in names:
        assert story.written(name) == list(range(3500))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_one_that_takes_the_jvm_down_twice_is_moved_out_and_the_others_go_on(story: Story) -> None:
    poisonous = "SELECT id, CASE WHEN id = 700 THEN reflect('java.lang.System', 'exit', 3) END AS boom FROM o"
    good = [story.apply() for _ in range(2)]
    bad = story.apply(poisonous)
    for name in [*good, bad]:
        story.feed(name, 500)
    for name in [*good, bad]:
        wait_for(lambda name=name: story.has_all(name))
    assert len({story.driver_of(name) for name in [*good, bad]}) == 1
    story.feed(bad, 500)
    moved = f"{MOST_CRASHES} times with this pipeline in it"
    wait_for(lambda: any(moved in event.get("line", "") for event in events.recent(story.client, bad)))
    for name in good:
        story.feed(name, 500)
    for name in good:
        wait_for(lambda name=name: story.has_all(name))
        assert story.written(name) == list(range(1000))
    assert len({story.driver_of(name) for name in good}) == 1
    assert not any(moved in event.get("line", "") for name in good for event in events.recent(story.client, name))
    # What the poisonous batch would have written is not there, and what was there before it is there once.
    assert story.written(bad) == list(range(500))
    # It recovers as soon as it may go on, in its own driver.
    PipelineStore(story.client).apply(from_data(copying(bad, *story.topics[bad])))
    wait_for(lambda: story.has_all(bad))
    assert story.written(bad) == list(range(1000))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_pipeline_that_stops_or_is_fenced_leaves_the_others_alone(story: Story, broker: Any) -> None:
    stays, stops, fenced = (story.apply() for _ in range(3))
    for name in (stays, stops, fenced):
        story.feed(name, 100)
    for name in (stays, stops, fenced):
        wait_for(lambda name=name: story.has_all(name))
    driver = story.driver_of(stays)
    known = PipelineStore(story.client).all()[stops]
    PipelineStore(story.client).change(known, "stopped")
    events.EventWriter({"bootstrap.servers": broker.bootstrap}, fenced).write(events.ALIVE)
    wait_for(lambda: story.driver_of(stops) is None and story.driver_of(fenced) is None)
    story.feed(stays, 100)
    wait_for(lambda: story.has_all(stays))
    assert story.driver_of(stays) == driver and story.written(stays) == list(range(200))
