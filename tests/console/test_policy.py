"""What a role may not see stays out of every way out of the data service, which pages and REST stand on."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from console_world import Console

from penstock.client.sync import SyncClient
from penstock.console.access.access_file import Runner
from penstock.console.access.audit import Audit
from penstock.console.access.logins import Logins
from penstock.console.access.users import User
from penstock.console.cluster import Cluster, ConsoleSession
from penstock.console.data import (
    downloads,
    groups,
    letters,
    messages,
    overview,
    pipeline_rights,
    pipelines,
    sql,
    topics,
    transactions,
)
from penstock.console.data.viewer import AccessDenied, Viewer
from penstock.console.policy import MASK, Mask, Policy, Visible
from penstock.operate.errors import ExitCode, UserError
from penstock.operate.topics import create_topics
from penstock.pipelines.control import events
from penstock.pipelines.control.registration import NOBODY, Opened, Registration
from penstock.pipelines.control.store import PipelineStore
from penstock.pipelines.spec import shape_of

RULES = Policy(
    visible=(Visible(("viewer",), ("public.*", "*.dlq")),),
    masks=(Mask(("public.policy.cards",), ("value.card",), ()),),
)
# Other stories of the same broker have topics of such names, too.
PUBLIC, CARDS, SECRET = "public.policy", "public.policy.cards", "secret.policy"


class World:
    def __init__(self, console: Console, folder: Path) -> None:
        self.bootstrap = console.broker.bootstrap
        self.cluster = Cluster("local", ConsoleSession({"bootstrap.servers": self.bootstrap}), folder)
        self.audit, self._logins = Audit(folder / "audit.jsonl"), Logins("x")

    def viewer(self, role: str, **more: Any) -> Viewer:
        return Viewer(self._logins.open(User(role, role)), self.cluster, RULES, self.audit, **more)

    def look(self) -> None:
        """Wait for a look that began after now."""
        for _ in range(2):
            at = int(time.time() * 1000)
            self.cluster.look_again()
            assert self.cluster.wait_for_look(at, 60) is not None

    def commit(self, group: str, *topics: str) -> None:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        consumer.commit(offsets=[TopicPartition(topic, 0, 0) for topic in topics], asynchronous=False)
        consumer.close()

    def write(self, topic: str, value: Any, headers: dict[str, str] | None = None) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        given = [(name, text.encode()) for name, text in (headers or {}).items()]
        producer.produce(topic, json.dumps(value).encode(), headers=given)
        assert producer.flush(30) == 0

    def apply(self, name: str, source: str) -> None:
        with SyncClient(self.bootstrap) as client:
            PipelineStore(client).apply(shape_of(_spec(name, source)))


def _spec(name: str, source: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "sources": {"s": {"topic": source, "format": {"type": "json", "schema": "n INT"}}},
        "sinks": {"out": {"from": "s", "topic": "public.out"}},
        **more,
    }


@pytest.fixture(scope="module")
def world(console: Console, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(console, tmp_path_factory.mktemp("policy"))
    create_topics(made.cluster.session, [PUBLIC, CARDS, SECRET, "public.out", "p-letters.dlq"], 1, 1, None)
    made.write(PUBLIC, {"n": 1})
    made.write(CARDS, {"card": "4711", "n": 1})
    made.write(SECRET, {"n": 1})
    made.cluster.start()
    yield made
    made.cluster.close()


def _is_unknown(ask: Callable[[], Any]) -> bool:
    """Refused as what is not there; and no hint names what is hidden."""
    with pytest.raises(UserError) as told:
        ask()
    return told.value.code == ExitCode.NOT_FOUND and "secret" not in str(told.value.hint)


def test_groups(world: World) -> None:
    viewer, admin = world.viewer("viewer"), world.viewer("admin")
    world.commit("g-hidden", SECRET)
    world.commit("g-both", SECRET, PUBLIC)
    world.look()
    rows = {row["name"]: row for row in groups.group_page(viewer).rows}
    assert "g-hidden" not in rows and rows["g-both"]["topics"] == 1 and rows["g-both"]["lag"] == 1
    assert {row["name"]: row for row in groups.group_page(admin).rows}["g-both"]["lag"] == 2
    shown = groups.group(viewer, "g-both")
    assert [row["topic"] for row in shown["offsets"]] == [PUBLIC] and SECRET not in json.dumps(shown)
    world.commit("g-newest", SECRET)  # no look has seen this one yet
    for ask in (groups.group, groups.rebalances, lambda v, g: groups.plan(v, g, "earliest")):
        for name in ("g-hidden", "g-newest"):
            assert _is_unknown(lambda ask=ask, name=name: ask(viewer, name))
    assert SECRET not in json.dumps(groups.plan(viewer, "g-both", "earliest"))
    assert overview.find(viewer, "g-hidden") == [] and overview.find(admin, "g-hidden")
    assert overview.figures(viewer, ["group:g-hidden:lag"]) == {"group:g-hidden:lag": []}
    assert "g-hidden" not in json.dumps(overview.overview(viewer))


def test_transactions(world: World) -> None:
    producers = []
    for name, written in (("t-hidden", [SECRET]), ("t-both", [SECRET, PUBLIC])):
        producer = Producer({"bootstrap.servers": world.bootstrap, "transactional.id": name})
        producer.init_transactions(60)
        producer.begin_transaction()
        for topic in written:
            producer.produce(topic, b"{}")
        producer.flush(30)
        producers.append(producer)
    try:
        viewer = world.viewer("viewer")
        rows = {row["id"]: row for row in transactions.transaction_page(viewer).rows}
        assert set(rows) == {"t-both"} and rows["t-both"]["partitions"] == [f"{PUBLIC}-0"]
        shown = transactions.transaction(viewer, "t-both")
        assert shown["partitions"] == [f"{PUBLIC}-0"] and SECRET not in json.dumps(shown)
        for name in ("t-hidden", "t-of-nobody"):
            assert _is_unknown(lambda name=name: transactions.transaction(viewer, name))
        assert {row["id"] for row in transactions.transaction_page(world.viewer("admin")).rows} >= {"t-hidden"}
    finally:
        for producer in producers:
            producer.abort_transaction(60)


def test_pipelines_and_what_they_say(world: World) -> None:
    for name, source in (("p-hidden", SECRET), ("p-cards", CARDS), ("p-seen", PUBLIC)):
        world.apply(name, source)
    with SyncClient(world.bootstrap) as client:
        events.ensure(client)
    writer = events.PlainWriter({"bootstrap.servers": world.bootstrap})
    for name in ("p-hidden", "p-cards", "p-seen"):
        writer.write(name, events.LOG, line="card 4711 is no number")
        writer.write(name, events.STATE, state="failed", error="card 4711 is no number")
    writer.close()
    world.look()
    viewer = world.viewer("viewer")
    listed = json.dumps([pipelines.pipelines(viewer), pipelines.summaries(viewer), overview.overview(viewer)])
    assert "p-seen" in listed and "p-cards" in listed and "p-hidden" not in listed and "secret" not in listed
    assert set(pipelines.names(viewer)) & {"p-hidden", "p-cards", "p-seen"} == {"p-cards", "p-seen"}
    for ask in (pipelines.pipeline, pipelines.flow, pipelines.log_lines, letters.letters):
        assert _is_unknown(lambda ask=ask: ask(viewer, "p-hidden"))
        assert "4711" not in json.dumps(ask(viewer, "p-cards"))
    assert pipelines.pipeline(viewer, "p-cards")["error"] == MASK
    assert pipelines.pipeline(viewer, "p-seen")["error"] == "card 4711 is no number"
    assert overview.find(viewer, "p-hidden") == []
    assert overview.figures(viewer, ["pipeline:p-hidden:out:rows"]) == {"pipeline:p-hidden:out:rows": []}
    assert "p-hidden" in json.dumps(pipelines.summaries(world.viewer("admin")))


def test_letters_and_where_they_go_back_to(world: World) -> None:
    world.apply("p-letters", PUBLIC)
    for origin in (SECRET, CARDS, PUBLIC):
        told = {"reason": "card 4711 is no number", "pipeline": "p-letters", "topic": origin}
        headers = {f"penstock.dlq.{key}": text for key, text in {**told, "partition": "0", "offset": "0"}.items()}
        world.write("p-letters.dlq", {"card": "4711", "from": origin}, headers)
    found = letters.letters(world.viewer("viewer"), "p-letters")["letters"]
    assert [row["source_topic"] for row in found] == [CARDS, PUBLIC]
    assert "4711" not in json.dumps(found[0]) and "4711" in json.dumps(found[1])
    assert letters.letters(world.viewer("admin"), "p-letters")["letters"][1]["reason"] == MASK  # no role is excepted
    # The letters' topic read as any other one: masked as where they came from, whole where that is hidden.
    wanted = messages.Wanted(start="oldest")
    hidden, cards, public = messages.messages(world.viewer("viewer"), "p-letters.dlq", wanted)
    assert "4711" not in json.dumps([hidden, cards]) and "4711" in public["value"]["text"]
    assert hidden["value"]["text"] == MASK and json.loads(cards["value"]["text"])["card"] == MASK
    held = messages.messages(world.viewer("viewer"), "p-letters.dlq", messages.Wanted(start="oldest", value="4711"))
    assert [row["offset"] for row in held] == [public["offset"]]
    with pytest.raises(AccessDenied, match="letters"):
        sql.query(world.viewer("viewer"), "SELECT * FROM topic('p-letters.dlq')")
    world.look()
    restricted = Policy(visible=(Visible(("editor",), ("public.*", "*.dlq")),))
    editor = Viewer(world.viewer("editor").login, world.cluster, restricted, world.audit)
    with pytest.raises(AccessDenied, match="topics that you do not see"):
        letters.redrive(editor, "p-letters")


def test_sql_and_samples_of_dry_runs(world: World) -> None:
    viewer, admin = world.viewer("viewer"), world.viewer("admin")
    assert _is_unknown(lambda: sql.query(viewer, f"SELECT * FROM topic('{PUBLIC}') JOIN topic('{SECRET}')"))
    for asker in (viewer, admin):
        with pytest.raises(AccessDenied, match="masked"):
            sql.query(asker, f"SELECT * FROM topic('{CARDS}')")
    (given,) = pipelines._sample(admin, CARDS)
    assert json.loads(given["value"]) == {"card": MASK, "n": 1}
    assert _is_unknown(lambda: pipelines._sample(viewer, SECRET))
    sql.save(world.viewer("editor"), "over what is hidden", f"SELECT * FROM topic('{SECRET}')")
    assert sql.saved(viewer) == [] and sql.saved(admin)


def test_recent_changes(world: World) -> None:
    for topic in (SECRET, PUBLIC):
        world.audit.write("somebody", "topic.configure", topic, cluster="local")
    restricted = Policy(visible=(Visible(("editor",), ("public.*",)),))
    editor = Viewer(world.viewer("editor").login, world.cluster, restricted, world.audit)
    changes = overview.overview(editor)["changes"]
    assert PUBLIC in {row["target"] for row in changes if row["user"] == "somebody"}
    assert SECRET not in {row["target"] for row in changes}
    with pytest.raises(AccessDenied):
        overview.doctor(editor)


ALLOWED = Runner(connectors=["topic", "generator"], secrets=["env:PENSTOCK_OPEN_*"])


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"settings": {"spark": {"spark.jars": "x.jar"}}}, "settings.spark"),
        ({"settings": {"master": "spark://h:7077"}}, "settings.master"),
        ({"views": {"v": "SELECT reflect('java.lang.System', 'exit', 1) FROM s"}}, "run code"),
        ({"views": {"v": "SELECT * FROM text.`/etc/passwd`"}}, "run code or read files"),
        ({"views": {"v": {"python": "code:f"}}, "modules": {"code": "def f(s): return s"}}, "Python code"),
        ({"sinks": {"out": {"from": "s", "connector": "my.code:Sink"}}}, "my.code:Sink is not on the list"),
        ({"sinks": {"out": {"from": "s", "connector": "files", "path": "/tmp/x"}}}, "files is not on the list"),
        ({"sinks": {"out": {"from": "s", "topic": "${env:PENSTOCK_DATABASE}"}}}, "env:PENSTOCK_DATABASE is not"),
        ({"alerts": [{"when": "failed", "to": "webhook:http://169.254.169.254/"}]}, "calls an address"),
        ({"sources": {"s": {"topic": PUBLIC, "format": {"type": "avro", "registry": "http://x"}}}}, "outside"),
    ],
)
def test_an_editor_applies_only_what_the_list_allows(world: World, more: dict[str, Any], reason: str) -> None:
    editor = world.viewer("editor", runner=ALLOWED)
    text = pipelines.as_yaml(_spec("p-of-editor", PUBLIC, **more))
    for ask in (pipelines.check, lambda v, t: pipelines.apply(v, t, 0), pipelines.dry_run):
        with pytest.raises(AccessDenied) as told:
            ask(editor, text)
        assert "role admin" in told.value.message and reason in told.value.message


def test_an_editor_applies_what_the_list_allows_and_nobody_without_it(world: World) -> None:
    plain = pipelines.as_yaml(_spec("p-of-editor", PUBLIC))
    allowed = world.viewer("editor", runner=ALLOWED)
    for viewer in (world.viewer("editor"), world.viewer("viewer", runner=ALLOWED)):
        with pytest.raises(AccessDenied):
            pipelines.apply(viewer, plain, 0)
    with_own = world.viewer("editor", runner=ALLOWED, credentials={"client.id": "somebody"})
    with pytest.raises(AccessDenied, match="its own rights"):
        pipelines.apply(with_own, plain, 0)
    made = pipelines.apply(allowed, plain, 0)
    assert made["generation"] == 1
    with SyncClient(world.bootstrap) as client:
        spec = _spec("p-of-admin", PUBLIC, settings={"spark": {"spark.ui.enabled": "false"}})
        PipelineStore(client).apply(shape_of(spec))
    with pytest.raises(AccessDenied):  # what an admin made is not an editor's to replace
        pipelines.apply(allowed, pipelines.as_yaml(_spec("p-of-admin", PUBLIC)), 1)


def _without_rules(world: World, role: str, **more: Any) -> Viewer:
    return Viewer(world.viewer(role).login, world.cluster, Policy(), world.audit, **more)


def test_what_is_the_clusters_own_is_changed_by_admins_only(world: World) -> None:
    """Applied pipelines are records of an internal topic: who could write there could apply anything."""
    world.apply("p-own", PUBLIC)
    world.look()
    editor, store = _without_rules(world, "editor"), "__penstock_pipelines"
    world.commit("__penstock_story", PUBLIC)
    for change in (
        lambda: messages.produce(editor, store, {"key": "p-forged", "value": "{}"}),
        lambda: topics.create_topic(editor, "__penstock_other"),
        lambda: topics.configure(editor, store, {"retention.ms": "1"}),
        lambda: topics.grow(editor, store, 64),
        lambda: topics.empty(editor, store),
        lambda: topics.delete_topic(editor, store),
        lambda: groups.reset(editor, "__penstock_story", "latest"),
        lambda: groups.delete(editor, "__penstock_story"),
    ):
        before = len(world.audit.recent(1_000))
        with pytest.raises(AccessDenied, match="takes the role admin"):
            change()
        after = world.audit.recent(1_000)
        assert len(after) == before + 1 and not after[0]["ok"]
    # A letter says itself where it goes back to.
    told = {"topic": store, "partition": "0", "offset": "0", "pipeline": "p-own", "reason": "none"}
    create_topics(world.cluster.session, ["p-own.dlq"], 1, 1, None)
    world.write("p-own.dlq", {}, {f"penstock.dlq.{key}": text for key, text in told.items()})
    with pytest.raises(AccessDenied, match="takes the role admin"):
        letters.redrive(editor, "p-own")
    assert "p-forged" not in PipelineStore(world.cluster.session.client).all()
    groups.delete(_without_rules(world, "admin"), "__penstock_story")


def test_internal_topics_are_read_by_who_sees_every_record(world: World) -> None:
    """What drivers said about records stands in one: masked fields would come out there."""
    with SyncClient(world.bootstrap) as client:
        events.ensure(client)
    writer = events.PlainWriter({"bootstrap.servers": world.bootstrap})
    writer.write("p-cards", events.LOG, line="card 4711 is no number")
    writer.close()
    everything = Policy(visible=(Visible(("viewer",), ("*",)),))
    restricted = Viewer(world.viewer("viewer").login, world.cluster, everything, world.audit)
    wanted = messages.Wanted()
    for viewer in (world.viewer("editor"), restricted):
        for ask in (
            lambda v: messages.messages(v, events.TOPIC, wanted),
            lambda v: next(messages.tail(v, events.TOPIC, wanted, threading.Event())),
            lambda v: messages.message(v, events.TOPIC, 0, 0),
            lambda v: downloads.download(v, events.TOPIC, wanted),
            lambda v: sql.query(v, f"SELECT * FROM topic('{events.TOPIC}')"),
        ):
            with pytest.raises(AccessDenied, match="every topic"):
                ask(viewer)
    assert messages.messages(_without_rules(world, "viewer"), events.TOPIC, wanted)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"sinks": {"out": {"from": "s", "topic": "__penstock_pipelines"}}}, "the cluster's own"),
        ({"sinks": {"out": {"from": "s", "topic_column": "'__penstock_pipelines'"}}}, "a pattern or a column"),
        ({"sources": {"s": {"pattern": ".*", "format": {"type": "json", "schema": "n INT"}}}}, "a pattern"),
        ({"settings": {"dead_letter_topic": "__penstock_pipelines"}}, "the cluster's own"),
        ({"sources": {"s": {"topic": CARDS, "format": {"type": "json", "schema": "n INT"}}}}, "masked for you"),
        ({"sinks": {"out": {"from": "s", "topic": "${file:/open/../db}"}}}, "is not on the list"),
    ],
)
def test_a_listed_pipeline_is_no_way_around_the_rules(world: World, more: dict[str, Any], reason: str) -> None:
    allowed = Runner(connectors=["topic"], secrets=["file:/open/*"])
    with pytest.raises(AccessDenied, match=reason):
        pipelines.apply(world.viewer("editor", runner=allowed), pipelines.as_yaml(_spec("p-round", PUBLIC, **more)), 0)


def test_runners_say_what_they_open_to_editors(world: World) -> None:
    """Each that could come to run a pipeline must open what it uses; those that ended count no more."""
    plain = _spec("p-opened", PUBLIC)
    secret = _spec("p-opened", PUBLIC, sinks={"out": {"from": "s", "topic": "${env:PENSTOCK_OPEN_TOPIC}"}})
    editor, with_file = _without_rules(world, "editor"), _without_rules(world, "editor", runner=ALLOWED)
    with SyncClient(world.bootstrap) as client:
        events.ensure(client)

    def says(runner: str, opened: Any, **more: Any) -> None:
        writer = events.PlainWriter({"bootstrap.servers": world.bootstrap})
        writer.write(NOBODY, events.RUNNER, **Registration(runner, opened=opened, **more).content())
        writer.close()
        world.look()

    def told(spec: dict[str, Any], viewer: Viewer = editor) -> str:
        try:
            pipeline_rights.insist_on_applying(viewer, shape_of(spec))
        except AccessDenied as error:
            return error.message
        return "applied"

    assert "no list" in told(plain)
    says("one", Opened(("topic",), ("env:PENSTOCK_OPEN_*",)))
    assert told(plain) == told(secret) == "applied"
    says("two", None)
    assert "the runner two opens nothing" in told(plain)
    assert told(plain, with_file) == "applied"  # the file of --access speaks for it
    says("two", Opened(("generator",)))
    for viewer in (editor, with_file):
        assert "topic is not on the list of the runner two" in told(plain, viewer)
    says("two", Opened(("topic",), ("env:*",)), env_prefix="OTHER_")
    assert told(plain) == "applied" and "named OTHER_" in told(secret)
    says("two", "everything")
    assert "the runner two opens nothing" in told(plain)
    says("two", None, ended=True)
    assert told(secret) == "applied"
    says("one", None, ended=True)
    assert "no list" in told(plain)
