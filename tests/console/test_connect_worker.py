"""The facade beside a real Kafka Connect worker: one script goes to both, and the answers are compared field by field.

What is named differently by nature (classes, versions, workers, a connector's own settings) is mapped; what differs on
purpose stands in DIFFERENT and in docs/console.md, and is checked to differ in exactly that way.
"""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from console_world import TOKEN, Console

from penstock.client.sync import SyncClient
from penstock.console.connect.connectors import CLASS
from penstock.pipelines.control import events
from penstock.testing import peers
from penstock.testing.ports import free_port

pytestmark = pytest.mark.java
FILE_CLASS = "org.apache.kafka.connect.file.FileStreamSourceConnector"
FOREIGN = "com.example.Foreign"
PATIENCE_SECONDS = 240.0
SPEC = """
sources:
  s: {topic: worker.in, format: {type: json, schema: n INT}}
sinks:
  out: {from: s, topic: worker.out}
"""
# A request that the worker cannot read costs it 500, as if the fault were its own; ours is 400.
UNREADABLE = (
    "half a body", "no JSON", "no body", "a list", "a text", "an unknown field", "no config", "config null",
    "config a list", "a value that is a list", "half a config", "validate without class", "validate nothing",
    "validate a foreign class", "validate half a config", "an unknown initial state",
)  # fmt: skip
DIFFERENT = {  # (our status, the worker's)
    **dict.fromkeys(UNREADABLE, (400, 500)),
    "a name with a slash": (400, 201),
    "forget topics": (403, 202),
    "offsets": (404, 200),
    "OPTIONS": (405, 200),
    "loggers": (404, 200),
    "a stopped one": (200, 200),  # says PAUSED: a pipeline runs or does not
}


@dataclass
class Side:
    """One of the two that the script goes to."""

    client: httpx.Client
    own_class: str
    settings: dict[str, str]

    @property
    def config(self) -> dict[str, str]:
        return {"connector.class": self.own_class, **self.settings}

    def ask(self, method: str, path: str, body: Any = None, kind: str | None = "application/json") -> httpx.Response:
        content = body if isinstance(body, str) or body is None else json.dumps(body)
        headers = {"content-type": kind} if kind is not None and content is not None else {}
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            answer = self.client.request(method, path, content=content, headers=headers)
            passing = answer.status_code == 409 and ("rebalance" in answer.text or "momentarily" in answer.text)
            if not passing or time.monotonic() > deadline:
                return answer
            time.sleep(0.2)

    def wait_for(self, name: str, state: str) -> None:
        """Until the connector and its task say so."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            answer = self.client.get(f"/connectors/{name}/status")
            told = answer.json()
            if answer.status_code == 200:
                states = [told["connector"]["state"], *(task["state"] for task in told["tasks"])]
                if states == [state, state]:
                    return
            assert time.monotonic() < deadline, told
            time.sleep(0.2)

    def mapped(self, answer: httpx.Response) -> tuple[int, Any]:
        if not answer.content:
            return answer.status_code, None
        try:
            told = answer.json()
        except ValueError:
            return answer.status_code, answer.text
        return answer.status_code, self._mapped(told)

    def _mapped(self, told: Any, key: str = "") -> Any:
        if isinstance(told, dict):
            if "connector.class" in told:
                assert all(isinstance(value, str) for value in told.values()), told
                told = {name: told[name] for name in ("connector.class", "name") if name in told}
            named = {"version", "commit", "worker_id", "documentation", "width", "display_name"}
            return {name: "…" if name in named else self._mapped(value, name) for name, value in told.items()}
        if isinstance(told, list):
            if key == "groups":
                return [one for one in told if one == "Common"]
            if key == "topics":
                return all(isinstance(one, str) for one in told)
            return [self._mapped(one) for one in told if self._is_common(one)]
        if isinstance(told, str):
            told = re.sub(r"PluginDesc\{.*\}", "PluginDesc{…}", told).replace(f"{_ERRORS}.ConnectException: ", "")
            return told.replace(self.own_class, "<class>").replace(self.own_class.rpartition(".")[2], "<short>")
        return told

    def _is_common(self, one: Any) -> bool:
        """Of lists of plugins and settings: what both have."""
        if not isinstance(one, dict):
            return True
        named = one.get("definition", one)
        if "class" in one:
            return bool(one["class"] == self.own_class)
        return "importance" not in named or named["name"] in ("name", "connector.class")


_ERRORS = "org.apache.kafka.connect.errors"


def script(side: Side, runs: Callable[[], None]) -> Iterator[tuple[str, httpx.Response]]:
    """Everything that is asked of both; `runs` is called when the connector `one` should be at work."""
    ask, config, plugin = side.ask, side.config, side.own_class
    yield "the server", ask("GET", "/")
    yield "no connectors", ask("GET", "/connectors")
    for part in ("", "/config", "/status", "/tasks", "/topics", "/tasks/0/status", "/nonsense"):
        yield f"unknown connector{part}", ask("GET", f"/connectors/ghost{part}")
    for method, part in (("PUT", "pause"), ("PUT", "resume"), ("PUT", "stop"), ("POST", "restart")):
        yield f"unknown connector, {part}", ask(method, f"/connectors/ghost/{part}")
    yield "unknown connector, restart with tasks", ask("POST", "/connectors/ghost/restart?includeTasks=true")
    yield "unknown connector, restart a task", ask("POST", "/connectors/ghost/tasks/0/restart")
    yield "unknown connector, delete", ask("DELETE", "/connectors/ghost")
    yield "unknown connector, change", ask("PATCH", "/connectors/ghost/config", {"tasks.max": "1"})
    yield "a path that is none", ask("GET", "/nonsense")
    yield "a method that is none", ask("DELETE", "/connectors")
    yield "another method that is none", ask("POST", "/connectors/ghost/status", {})

    yield "a foreign class", ask("POST", "/connectors", {"name": "x", "config": {"connector.class": FOREIGN}})
    yield "a foreign class in its place", ask("PUT", "/connectors/x/config", {"connector.class": FOREIGN})
    yield "no class", ask("POST", "/connectors", {"name": "x", "config": {}})
    yield "no class in its place", ask("PUT", "/connectors/x/config", {})
    yield "another name inside", ask("POST", "/connectors", {"name": "x", "config": {**config, "name": "y"}})
    yield "another name inside, in its place", ask("PUT", "/connectors/x/config", {**config, "name": "y"})
    yield "no name", ask("POST", "/connectors", {"config": config})
    yield "an empty name", ask("POST", "/connectors", {"name": "", "config": config})
    yield "a blank name", ask("POST", "/connectors", {"name": "  ", "config": config})
    yield "the name in the config alone", ask("POST", "/connectors", {"config": {**config, "name": "x"}})

    yield "half a body", ask("POST", "/connectors", '{"name": ')
    yield "no JSON", ask("POST", "/connectors", '{"name": oops}')
    yield "no body", ask("POST", "/connectors", "")
    yield "a list", ask("POST", "/connectors", [])
    yield "a text", ask("POST", "/connectors", '"a"')
    yield "an unknown field", ask("POST", "/connectors", {"name": "x", "config": config, "other": 1})
    yield "no config", ask("POST", "/connectors", {"name": "x"})
    yield "config null", ask("POST", "/connectors", {"name": "x", "config": None})
    yield "config a list", ask("POST", "/connectors", {"name": "x", "config": []})
    yield "a value that is a list", ask("PUT", "/connectors/x/config", {**config, "tasks.max": [1]})
    yield "half a config", ask("PUT", "/connectors/x/config", "{")
    right = {"name": "x", "config": config}
    yield "an unknown initial state", ask("POST", "/connectors", {**right, "initial_state": "HUH"})
    yield "another content type", ask("POST", "/connectors", json.dumps(right), "text/plain")
    yield "a form", ask("POST", "/connectors", "name=x", "application/x-www-form-urlencoded")
    yield "another content type in its place", ask("PUT", "/connectors/x/config", json.dumps(config), "text/plain")
    yield "XML is wished for", side.client.get("/connectors", headers={"accept": "application/xml"})
    yield "JSON or anything", side.client.get("/connectors", headers={"accept": "text/html, */*;q=0.1"})
    yield "nothing was made", ask("GET", "/connectors")

    yield "create", ask("POST", "/connectors", {"name": "one", "config": {**config, "tasks.max": 1}})
    runs()
    side.wait_for("one", "RUNNING")
    yield "create again", ask("POST", "/connectors", {"name": "one", "config": config})
    yield "all", ask("GET", "/connectors")
    for expand in ("info", "status", "status&expand=info", "other"):
        yield f"all with {expand}", ask("GET", f"/connectors?expand={expand}")
    for part in (
        "",
        "/config",
        "/status",
        "/tasks",
        "/topics",
        "/tasks/0/status",
        "/tasks/9/status",
        "/tasks/a/status",
    ):
        yield f"the connector{part}", ask("GET", f"/connectors/one{part}")
    yield "offsets", ask("GET", "/connectors/one/offsets")
    yield "HEAD", ask("HEAD", "/connectors")
    yield "OPTIONS", ask("OPTIONS", "/connectors")
    yield "forget topics", ask("PUT", "/connectors/one/topics/reset")

    yield "the same config again", ask("PUT", "/connectors/one/config", config)
    side.wait_for("one", "RUNNING")
    yield "without a content type", ask("PUT", "/connectors/one/config", json.dumps(config), None)
    yield "change one setting", ask("PATCH", "/connectors/one/config", {"tasks.max": "1"})
    yield "a second one", ask("PUT", "/connectors/two/config", {**config, "name": "two"})
    yield "the second one goes", ask("DELETE", "/connectors/two")
    yield "one that waits", ask("POST", "/connectors", {"name": "idle", "config": config, "initial_state": "PAUSED"})
    yield "that goes too", ask("DELETE", "/connectors/idle")

    side.wait_for("one", "RUNNING")
    yield "restart", ask("POST", "/connectors/one/restart")
    side.wait_for("one", "RUNNING")
    yield "restart with tasks", ask("POST", "/connectors/one/restart?includeTasks=true")
    side.wait_for("one", "RUNNING")
    yield "restart what failed", ask("POST", "/connectors/one/restart?includeTasks=true&onlyFailed=true")
    yield "restart a task", ask("POST", "/connectors/one/tasks/0/restart")
    yield "restart no task", ask("POST", "/connectors/one/tasks/9/restart")
    side.wait_for("one", "RUNNING")
    yield "pause", ask("PUT", "/connectors/one/pause")
    side.wait_for("one", "PAUSED")
    yield "pause again", ask("PUT", "/connectors/one/pause")
    yield "restart while paused", ask("POST", "/connectors/one/restart")
    side.wait_for("one", "PAUSED")
    yield "a paused one", ask("GET", "/connectors/one/status")
    yield "resume", ask("PUT", "/connectors/one/resume")
    side.wait_for("one", "RUNNING")
    yield "stop", ask("PUT", "/connectors/one/stop")
    yield "a stopped one", ask("GET", "/connectors/one/status")

    yield "plugins", ask("GET", "/connector-plugins")
    yield "a plugin's settings", ask("GET", f"/connector-plugins/{plugin}/config")
    yield "an unknown plugin's settings", ask("GET", "/connector-plugins/Foreign/config")
    check = f"/connector-plugins/{plugin}/config/validate"
    yield "validate", ask("PUT", check, {**config, "name": "v"})
    short = f"/connector-plugins/{plugin.rpartition('.')[2]}/config/validate"
    yield "validate by the short name", ask("PUT", short, {**config, "name": "v"})
    yield "validate without a name", ask("PUT", check, config)
    yield "validate without class", ask("PUT", check, {"name": "v"})
    yield "validate nothing", ask("PUT", check, {})
    foreign = f"/connector-plugins/{FOREIGN}/config/validate"
    yield "validate a foreign class", ask("PUT", foreign, {"connector.class": FOREIGN})
    yield "validate another class", ask("PUT", check, {"connector.class": FOREIGN})
    yield "validate half a config", ask("PUT", check, "{")

    yield "delete", ask("DELETE", "/connectors/one")
    yield "delete again", ask("DELETE", "/connectors/one")
    yield "a name with a slash", ask("POST", "/connectors", {"name": "a/b", "config": config})
    yield "loggers", ask("GET", "/admin/loggers")
    yield "health", ask("GET", "/health")


@pytest.fixture(scope="module")
def worker(console: Console, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    """A distributed worker of one, on our broker."""
    try:
        lib = peers.jars(f"kafka-connect-{peers.KAFKA_VERSION}", peers.KAFKA_CONNECT)
        peers.java()
    except peers.PeerUnavailable as error:
        pytest.skip(str(error))
    folder: Path = tmp_path_factory.mktemp("worker")
    port = free_port()
    topics = {name: f"worker-{name}" for name in ("config", "offset", "status")}
    settings = {
        "bootstrap.servers": console.broker.bootstrap,
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "plugin.discovery": "only_scan",
        "group.id": "connect-worker",
        **{f"{name}.storage.topic": topic for name, topic in topics.items()},
        **{f"{name}.storage.replication.factor": "1" for name in topics},
        "offset.storage.partitions": "1",
        "status.storage.partitions": "1",
        "scheduled.rebalance.max.delay.ms": "0",
        "listeners": f"http://127.0.0.1:{port}",
    }
    properties, log, lines = folder / "worker.properties", folder / "worker.log", folder / "lines.txt"
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    lines.write_text("a\nb\n")
    command = peers.java_command(lib, "org.apache.kafka.connect.cli.ConnectDistributed", str(properties), log="warn")
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_SECONDS) as client:
            _wait_until_ready(client, process, log)
            yield Side(client, FILE_CLASS, {"file": str(lines), "topic": "worker.lines", "tasks.max": "1"})
    finally:
        process.kill()
        process.wait()


def _wait_until_ready(client: httpx.Client, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            if client.get("/health").json()["status"] == "healthy":
                return
        except (httpx.HTTPError, ValueError, KeyError):
            pass
        assert process.poll() is None and time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.2)


@contextmanager
def a_driver_says_it_works(console: Console, name: str) -> Iterator[Callable[[], None]]:
    """As a driver would: it runs, one query makes progress, and it is alive until the end."""
    over = threading.Event()

    def speak() -> None:
        writer = events.PlainWriter({"bootstrap.servers": console.broker.bootstrap})
        writer.write(name, events.STATE, state="running")
        writer.write(name, events.PROGRESS, query="out", batch=1, rows=1, rows_per_second=1.0, lag=0, batch_ms=1)
        while not over.wait(2):
            writer.write(name, events.ALIVE)
        writer.close()

    thread = threading.Thread(target=speak)
    try:
        yield thread.start
    finally:
        over.set()
        if thread.ident is not None:
            thread.join()


def test_a_real_worker_answers_the_same(console: Console, connect: str, worker: Side) -> None:
    with (
        httpx.Client(base_url=connect, auth=("anybody", TOKEN), timeout=PATIENCE_SECONDS) as client,
        a_driver_says_it_works(console, "one") as speaks,
    ):
        ours = Side(client, CLASS, {"pipeline": SPEC})
        with SyncClient(console.broker.bootstrap) as admin:
            events.ensure(admin)
        answers = {label: ours.mapped(answer) for label, answer in script(ours, speaks)}
    theirs = {label: worker.mapped(answer) for label, answer in script(worker, lambda: None)}
    told = []
    for label, answer in answers.items():
        if label not in DIFFERENT:
            if answer != theirs[label]:
                told.append(f"{label}:\n  ours   {answer}\n  worker {theirs[label]}")
        elif (answer[0], theirs[label][0]) != DIFFERENT[label]:
            told.append(f"{label} differs otherwise:\n  ours   {answer}\n  worker {theirs[label]}")
        elif answer[0] >= 400:
            assert set(answer[1]) == {"error_code", "message"} and answer[1]["error_code"] == answer[0]
    assert told == [], "\n".join(told)
    assert set(DIFFERENT) <= set(answers) and len(answers) > 90
    assert answers["a stopped one"][1]["connector"]["state"] == "PAUSED"
