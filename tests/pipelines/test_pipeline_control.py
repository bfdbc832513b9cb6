"""Applied pipelines: stored in the cluster, run by one driver at a time, seen from the command line."""

from __future__ import annotations

import base64
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.main import run as penstock
from penstock.client.sync import SyncClient
from penstock.operate.errors import ExitCode
from penstock.pipelines.control import events, hosted
from penstock.pipelines.control.drivers import Drivers, PipelineRun
from penstock.pipelines.control.metrics import RunnerMetrics
from penstock.pipelines.control.runner import Runner
from penstock.pipelines.control.store import Applied, Conflict, PipelineStore
from penstock.pipelines.spec import SpecError, from_data
from penstock.testing.broker_process import BrokerProcess


@pytest.fixture
def client(broker: Any) -> Iterator[SyncClient]:
    with SyncClient(broker.bootstrap) as made:
        yield made


def generating(name: str, topic: str) -> dict[str, Any]:
    return {
        "name": name,
        "sources": {"made_up": {"connector": "generator", "kind": "orders", "rows_per_second": 50}},
        "sinks": {"out": {"from": "made_up", "topic": topic, "key": "order_id"}},
        "trigger": {"interval": "500 ms"},
    }


def wait_for(what: Callable[[], Any], seconds: float = 240) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = what()
        if found:
            return found
        time.sleep(0.2)
    raise AssertionError("it did not happen in time")


def test_apply_stop_restart_delete(broker: Any, client: SyncClient, tmp_path: Path, capsys: Any) -> None:
    name = f"p-{uuid.uuid4().hex[:6]}"
    file = tmp_path / "p.yml"
    file.write_text(f"name: {name}\nsources:\n  o: {{topic: o}}\nsinks:\n  out: {{from: o, topic: out}}\n")
    there = ["-b", broker.bootstrap]
    assert penstock(["pipeline", "apply", str(file), *there]) == 0
    assert penstock(["pipeline", "stop", name, *there]) == 0
    assert PipelineStore(client).all()[name].desired == "stopped"
    assert penstock(["pipeline", "restart", name, *there]) == 0
    assert PipelineStore(client).all()[name].generation == 3
    events.ensure(client)
    driver = events.PlainWriter({"bootstrap.servers": broker.bootstrap})
    driver.write(name, events.STATE, state="stopped", generation=2)  # is known of it, but not of what is applied now
    driver.close()
    capsys.readouterr()
    assert penstock(["pipeline", "list", "--json", *there]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert next(row for row in rows if row["name"] == name)["state"] == "waiting for a runner"
    assert penstock(["pipeline", "delete", name, "--yes", *there]) == 0
    assert name not in PipelineStore(client).all()
    assert penstock(["pipeline", "stop", name, *there]) == 4


def test_of_several_applies_at_once_each_gets_a_generation_of_its_own_or_learns_who_was_faster(
    client: SyncClient,
) -> None:
    name = f"p-{uuid.uuid4().hex[:6]}"
    spec = from_data(generating(name, "t"))
    store = PipelineStore(client)
    outcomes: list[Any] = []
    starting = threading.Barrier(4)

    def apply() -> None:
        starting.wait()
        try:
            outcomes.append(store.apply(spec).generation)
        except Conflict as error:
            outcomes.append(str(error))

    threads = [threading.Thread(target=apply) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    generations = sorted(item for item in outcomes if isinstance(item, int))
    assert generations == list(range(1, len(generations) + 1))
    assert store.all()[name].generation == len(generations)
    # Who changes what he has not seen is told so.
    told = rf"pipeline {name} was changed by .+@.+ at 20.+ UTC: generation {generations[-1]}"
    with pytest.raises(Conflict, match=told):
        store.apply(spec, expected=0)
    assert store.apply(spec, expected=generations[-1]).generation == generations[-1] + 1
    store.delete(name)


def test_an_apply_that_was_overtaken_between_looking_and_writing_fails(
    client: SyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = from_data(generating(f"p-{uuid.uuid4().hex[:6]}", "t"))
    store = PipelineStore(client)

    def overtaken() -> dict[str, Applied]:
        monkeypatch.undo()
        PipelineStore(client).apply(spec)
        return {}

    monkeypatch.setattr(store, "all", overtaken)
    with pytest.raises(Conflict, match="generation 1 is there"):
        store.apply(spec)
    assert store.all()[spec.name].generation == 1
    store.delete(spec.name)


JUNK = (
    b"",
    b"{",
    b"[]",
    b"{}",
    b'{"name": 5}',
    b"\xff",
    b"[" * 100_000,
    b'{"pipeline": "x", "kind": "state", "at_ms": 1}',
)


def test_what_is_no_pipeline_and_no_event_is_left_out(broker: Any, client: SyncClient, caplog: Any) -> None:
    from confluent_kafka import Producer

    name = f"p-{uuid.uuid4().hex[:6]}"
    spec = {"name": name, "sources": {"o": {"topic": "o"}}, "sinks": {"out": {"from": "o", "topic": "out"}}}
    applied = PipelineStore(client).apply(from_data(spec))
    events.ensure(client)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for value in (*JUNK, applied.to_json().replace(b'"generation": 1', b'"generation": "1"')):
        producer.produce("__penstock_pipelines", value, b"junk")
        producer.produce(events.TOPIC, value, name.encode())
    producer.produce("__penstock_pipelines", b"{", b"\xff")
    assert producer.flush(30) == 0
    writer = events.PlainWriter({"bootstrap.servers": broker.bootstrap})
    writer.write(name, events.LOG, line="it was said")
    writer.close()
    try:
        found = PipelineStore(client).all()
        assert found[name] == applied and "junk" not in found and "junk" in caplog.text
        assert [event["line"] for event in events.recent(client, name)] == ["it was said"]
        assert name in events.latest_states(client)
    finally:
        PipelineStore(client).delete(name)


def test_a_runner_leaves_out_what_is_no_pipeline(broker: Any) -> None:
    class Told:
        def __init__(self, key: bytes | None, value: bytes) -> None:
            self._key, self._value = key, value

        def key(self) -> bytes | None:
            return self._key

        def value(self) -> bytes:
            return self._value

        def error(self) -> None:
            return None

        def partition(self) -> int:
            return 0

        def offset(self) -> int:
            return 7

    class Given:
        def consume(self, *_: Any) -> list[Told]:
            return [Told(b"junk", value) for value in JUNK] + [Told(None, b"{")]

    runner = Runner({"bootstrap.servers": broker.bootstrap}, "nowhere")
    runner._applied[0] = {}
    runner._take_in(Given())
    assert runner._applied == {0: {}}


def test_looking_creates_no_topic(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as quiet:
        there = ["-b", quiet.bootstrap]
        for command in (["pipeline", "list"], ["pipeline", "status"], ["dlq", "list"]):
            assert penstock([*command, *there]) == 0
        assert penstock(["pipeline", "logs", "p", *there]) == ExitCode.NOT_FOUND
        assert (
            penstock(["pipeline", "stop", "p", *there]) == penstock(["pipeline", "delete", "p", "--yes", *there]) == 4
        )
        penstock(["doctor", *there])
        with SyncClient(quiet.bootstrap) as looking:
            assert not [name for name in looking.metadata(None).topics if name.startswith("__penstock")]


def test_an_applied_pipeline_holds_no_secret(client: SyncClient) -> None:
    data = generating("secretive", "t")
    data["sinks"]["db"] = {"from": "made_up", "connector": "postgres", "dsn": "x", "table": "t", "password": "hunter2"}
    with pytest.raises(SpecError, match=r"sinks\.db\.options\.password is a secret in plain text") as caught:
        PipelineStore(client).apply(from_data(data))
    assert "hunter2" not in str(caught.value)
    data["sinks"]["db"]["password"] = "${env:DB_PASSWORD}"
    applied = PipelineStore(client).apply(from_data(data))
    assert "${env:DB_PASSWORD}" in applied.to_json().decode()
    PipelineStore(client).delete("secretive")


def test_an_applied_pipeline_carries_the_files_that_its_runner_does_not_have(
    client: SyncClient, tmp_path: Path
) -> None:
    described = tmp_path / "reading.desc"
    described.write_bytes(b"\x01descriptor")
    data = generating("carrying", "t")
    data["sinks"]["out"] = {
        "from": "made_up",
        "topic": "t",
        "format": {"type": "protobuf", "descriptor_file": str(described), "message": "example.Reading"},
    }
    applied = PipelineStore(client).apply(from_data(data))
    kept = applied.parsed().sinks["out"].options["format"]
    assert base64.b64decode(kept["descriptor"]) == b"\x01descriptor" and "descriptor_file" not in kept

    data["sinks"]["out"]["format"]["descriptor_file"] = "${env:FOLDER}/reading.desc"
    applied = PipelineStore(client).apply(from_data(data))
    assert applied.parsed().sinks["out"].options["format"]["descriptor_file"] == "${env:FOLDER}/reading.desc"

    data["sinks"]["out"]["format"]["descriptor_file"] = str(tmp_path / "absent.desc")
    with pytest.raises(SpecError, match=r"absent\.desc: No such file"):
        PipelineStore(client).apply(from_data(data))
    PipelineStore(client).delete("carrying")


def test_the_second_driver_of_a_pipeline_fences_the_first(broker: Any, client: SyncClient) -> None:
    events.ensure(client)
    name = f"p-{uuid.uuid4().hex[:6]}"
    properties = {"bootstrap.servers": broker.bootstrap}
    first = events.EventWriter(properties, name)
    first.write(events.STATE, state="running", generation=1)
    second = events.EventWriter(properties, name)
    second.write(events.STATE, state="running", generation=2)
    with pytest.raises(events.Fenced, match=f"another driver runs pipeline {name} now"):
        first.write(events.ALIVE)
    second.write(events.PROGRESS, query="out", batch=1)
    known = events.latest_states(client)[name]
    assert known["generation"] == 2 and known["queries"]["out"]["batch"] == 1


def test_a_refused_pipeline_is_told_once_and_not_tried_again_at_once(
    broker: Any, client: SyncClient, tmp_path: Path
) -> None:
    events.ensure(client)
    name = f"p-{uuid.uuid4().hex[:6]}"
    spec = {**generating(name, "t"), "sinks": {"out": {"from": "made_up", "connector": "carrier-pigeon"}}}
    applied = Applied(name, spec, "running", 1, 0)
    told: list[str] = []
    drivers = Drivers(
        {"bootstrap.servers": broker.bootstrap}, str(tmp_path), lambda event: None, lambda _, line: told.append(line)
    )
    run = PipelineRun(applied, drivers)
    try:
        wait_for(lambda: drivers.tick() or run.tick() or run.restarts)
        assert any("there is no connector 'carrier-pigeon'" in line for line in told)
        assert told[-1] == f"the pipeline ended with code {hosted.REFUSED}; it starts again in 60 s"
        state = events.latest_states(client)[name]
        assert state["state"] == "refused" and "carrier-pigeon" in state["error"]
    finally:
        drivers.end()


def test_no_secret_reaches_the_log_whoever_of_the_drivers_processes_prints_it_after_however_long_a_line(
    broker: Any, client: SyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a driver one of whose children writes to the standard error that it inherited, as Spark's JVM does,
    secret = 'hunter"2%'
    monkeypatch.setenv("PENSTOCK_PASSWORD", secret)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    long = "os.write(2, b'x' * 2_000_000 + b'\\n')"
    code = f"import os\n{long}\nos.system('echo log in with \"$PENSTOCK_PASSWORD\" >&2')\n"
    (tmp_path / "chatty.py").write_text(code)
    events.ensure(client)
    name = f"p-{uuid.uuid4().hex[:6]}"
    option = {"password": "${env:PENSTOCK_PASSWORD}"}
    spec = {**generating(name, "t"), "sinks": {"out": {"from": "made_up", "connector": "chatty:No", **option}}}
    told: list[str] = []
    topic = events.PlainWriter({"bootstrap.servers": broker.bootstrap})

    def tell(pipeline: str, line: str) -> None:  # as a runner does
        topic.write(pipeline, events.LOG, line=line)
        told.append(line)

    drivers = Drivers({"bootstrap.servers": broker.bootstrap}, str(tmp_path), lambda event: None, tell)
    run = PipelineRun(Applied(name, spec, "running", 1, 0), drivers)
    try:
        wait_for(lambda: drivers.tick() or run.tick() or run.restarts)
        assert any("characters more" in line for line in told)
        # then the line is in the log and in the topic, without it.
        assert any("log in with (secret)" in line for line in told)
        assert secret not in "\n".join(told) and secret not in (tmp_path / "logs" / f"{name}.log").read_text()
    finally:
        drivers.end()


def test_metrics_follow_the_events() -> None:
    metrics = RunnerMetrics()
    metrics.take({"pipeline": "p", "kind": "state", "state": "running"})
    metrics.take({"pipeline": "p", "kind": "progress", "query": "out", "rows": 5, "lag": 3, "batch_ms": 20})
    value = metrics.registry.get_sample_value
    assert value("penstock_pipeline_running", {"pipeline": "p"}) == 1
    assert value("penstock_pipeline_lag", {"pipeline": "p", "query": "out"}) == 3
    assert value("penstock_pipeline_rows_total", {"pipeline": "p", "query": "out"}) == 5
    metrics.forget("p")
    assert value("penstock_pipeline_lag", {"pipeline": "p", "query": "out"}) is None


@pytest.mark.slow
def test_two_runners_run_a_pipeline_once_and_the_second_takes_over(
    broker: Any, client: SyncClient, new_topic: Callable[..., str], read_topic: Callable[..., Any], tmp_path: Path
) -> None:
    properties = {"bootstrap.servers": broker.bootstrap}
    topic = new_topic(label="shared")
    name = f"shared-{uuid.uuid4().hex[:6]}"
    runners, stops, threads = [], [], []
    for _ in range(2):
        stop, ready = threading.Event(), threading.Event()
        runners.append(Runner(properties, str(tmp_path / "state")))
        stops.append(stop)
        threads.append(threading.Thread(target=runners[-1].run, args=(stop.is_set, ready.set)))
        threads[-1].start()
        assert ready.wait(60)
    try:
        PipelineStore(client).apply(from_data(generating(name, topic)))
        wait_for(lambda: events.latest_states(client).get(name, {}).get("queries"))
        wait_for(lambda: read_topic(topic))
        owners = [index for index, runner in enumerate(runners) if name in runner._runs]
        assert len(owners) == 1
        stops[owners[0]].set()
        threads[owners[0]].join(120)
        before = len(read_topic(topic))
        wait_for(lambda: len(read_topic(topic)) > before)
        assert name in runners[1 - owners[0]]._runs
    finally:
        for stop in stops:
            stop.set()
        for thread in threads:
            thread.join(120)
        PipelineStore(client).delete(name)
    keys = [message.key() for message in read_topic(topic)]
    assert len(keys) == len(set(keys))


def test_dead_letters_are_listed_shown_and_redriven_once(
    broker: Any, new_topic: Callable[..., str], read_topic: Callable[..., Any], capsys: Any
) -> None:
    from confluent_kafka import Producer

    origin = new_topic(label="origin")
    dead = new_topic(name=f"{origin}.dlq")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for number in range(3):
        headers = {
            "own": b"kept",
            "penstock.dlq.reason": b"JSONDecodeError: no",
            "penstock.dlq.topic": origin.encode(),
            "penstock.dlq.partition": b"0",
            "penstock.dlq.offset": str(number).encode(),
        }
        producer.produce(dead, b"{oops", f"k{number}".encode(), headers=headers)
    producer.flush(30)
    there = ["-b", broker.bootstrap]
    assert penstock(["dlq", "list", "--json", *there]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {"topic": dead, "records": 3, "most_frequent_reason": "JSONDecodeError: no"} in rows
    assert penstock(["dlq", "show", origin, "-n", "1", *there]) == 0
    shown = capsys.readouterr().out
    assert f"from {origin}-0 at 0: JSONDecodeError: no" in shown and "value {oops" in shown
    assert penstock(["dlq", "redrive", origin, "--json", *there]) == 0
    assert json.loads(capsys.readouterr().out)["redriven"] == 3
    assert penstock(["dlq", "redrive", origin, "--json", *there]) == 0
    assert json.loads(capsys.readouterr().out)["redriven"] == 0
    back = read_topic(origin)
    assert sorted(message.key() for message in back) == [b"k0", b"k1", b"k2"]
    assert back[0].headers() == [("own", b"kept")]
    assert penstock(["dlq", "show", "nobody", *there]) == 4


def test_letters_go_back_as_they_were_and_each_by_itself(
    broker: Any, new_topic: Callable[..., str], read_topic: Callable[..., Any], capsys: Any
) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition

    origin = new_topic(partitions=4, label="origin")
    dead = new_topic(partitions=2, name=f"{origin}.dlq")
    # Given letters of ten keys from other partitions than a client of today would choose, and of yesterday,
    at_ms = int(time.time() * 1000) - 86_400_000
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for number in range(10):
        told = {
            "reason": "A" if number % 2 else "B",
            "topic": origin,
            "partition": 9 if number == 8 else number % 4,  # one is of a partition that is gone
            "offset": number,
            "timestamp": 1000 if number == 9 else at_ms + number,  # and one of a time that the topic has expired
        }
        headers = {f"penstock.dlq.{name}": str(value).encode() for name, value in told.items()}
        producer.produce(dead, str(number), f"k{number}", headers={"own": b"kept", **headers})
    producer.flush(30)
    reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": f"reader-{origin}", "log_level": 0})
    reader.commit(offsets=[TopicPartition(origin, 0, 0)], asynchronous=False)
    reader.close()

    def redrive(*options: str) -> dict[str, Any]:
        assert penstock(["dlq", "redrive", origin, "--json", "-b", broker.bootstrap, *options]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    # when those of one reason go first, and one of the others is only ticked off,
    assert redrive("--dry-run")["redriven"] == 10
    first = redrive("--reason", "A")
    assert (first["redriven"], first["left"], first["restamped"], first["moved"]) == (5, 5, 1, 0)
    assert first["also_read_by"] == {origin: [f"reader-{origin}"]}
    assert redrive("--reason", "A")["redriven"] == 0
    second = redrive()
    assert (second["redriven"], second["left"], second["moved"]) == (5, 0, 1)
    # then each is back once, in its partition, with its time.
    back = read_topic(origin)
    assert sorted(int(message.value()) for message in back) == list(range(10))
    for message in back:
        number = int(message.value())
        assert message.headers() == [("own", b"kept")] and message.key() == f"k{number}".encode()
        assert number == 8 or message.partition() == number % 4
        assert number == 9 or message.timestamp()[1] == at_ms + number


def test_letters_that_are_skipped_are_dealt_with(broker: Any, new_topic: Callable[..., str], capsys: Any) -> None:
    from confluent_kafka import Producer

    dead = new_topic(label="skipped", name=f"s-{uuid.uuid4().hex[:6]}.dlq")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for reason in ("hopeless", "hopeful"):
        producer.produce(dead, b"x", headers={"penstock.dlq.reason": reason.encode()})
    producer.flush(30)
    there = ["--json", "-b", broker.bootstrap]
    assert penstock(["dlq", "redrive", dead, "--skip", "--reason", "hopeless", *there]) == 0
    assert json.loads(capsys.readouterr().out)["skipped"] == 1
    assert penstock(["dlq", "redrive", dead, "--dry-run", *there]) == 0
    assert json.loads(capsys.readouterr().out)["left"] == 1  # without a topic to go back to
