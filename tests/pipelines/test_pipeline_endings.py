"""A pipeline that is reset or deleted, or whose checkpoint is gone: nothing it left open hides what others write."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructType

from penstock.cli.main import run as penstock
from penstock.client.sync import SyncClient
from penstock.pipelines import ending
from penstock.pipelines.checkpoint import CheckpointGone, PipelineState, QueryState
from penstock.pipelines.connectors.base import Batch
from penstock.pipelines.control import events
from penstock.pipelines.control.runner import Runner
from penstock.pipelines.control.store import Applied
from penstock.pipelines.progress import is_idle
from penstock.pipelines.spark import sink_decisions as decisions
from penstock.pipelines.spark import sink_transactions as transactions
from penstock.pipelines.spark.sink import SinkProtocol, TaskDone
from penstock.pipelines.spark.sink_journal import BACKFILL
from penstock.pipelines.spec import SpecError
from penstock.pipelines.storage import LocalStorage

FINGERPRINT = {"version": 2, "sources": ["topic words"], "stateful": [], "sinks": ["out"], "mode": "append"}
SCHEMA = StructType().add("key", StringType()).add("value", StringType())


class Killed:
    """A pipeline whose driver was killed in the middle of its first batch, as its cluster and its folder show it."""

    def __init__(self, bootstrap: str, client: SyncClient, folder: Path, topic: str) -> None:
        self.client, self.folder, self.topic, self.bootstrap = client, folder, topic, bootstrap
        self.pipeline = f"p-{uuid.uuid4().hex[:6]}"
        self.state = PipelineState(LocalStorage(str(folder / self.pipeline)), self.pipeline)
        self.query: QueryState = self.state.open("out", FINGERPRINT)
        ending.register(client, self.pipeline, "here", [self.query.name])
        options = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "txnAppId": self.query.name}
        self.protocol = SinkProtocol.make(options, SCHEMA, False)

    def task(self, value: str, batch_id: int = 0) -> TaskDone:
        rows = iter([pa.RecordBatch.from_pydict({"key": [value], "value": [value]})])
        return self.protocol.write(self.query.name, batch_id, 0, rows)

    def decide(self, *done: TaskDone) -> None:
        async def run(inner: Any) -> None:
            implicit = await transactions.uses_implicit_partitions(inner)
            owner = await decisions.take_over(inner, self.query.name)
            chosen = [item.transaction for item in done if item.transaction is not None]
            await decisions.decide(inner, owner, self.query.name, 0, chosen, implicit=implicit)

        self.client.run(run)

    def open(self) -> list[str]:
        found = self.client.run(lambda inner: transactions.open_under_prefix(inner, f"penstock.{self.pipeline}."))
        return [item.transactional_id for item in found]


@pytest.fixture
def client(broker: Any) -> Iterator[SyncClient]:
    with SyncClient(broker.bootstrap) as made:
        yield made


@pytest.fixture
def killed(broker: Any, client: SyncClient, tmp_path: Path, new_topic: Callable[..., str]) -> Iterator[Killed]:
    made = Killed(broker.bootstrap, client, tmp_path, new_topic(partitions=1, label="out"))
    yield made
    ending.end_pipeline(client, made.pipeline)


def values(messages: list[Any]) -> list[str]:
    return sorted(message.value().decode() for message in messages)


def test_ids_begin_with_the_pipeline(killed: Killed) -> None:
    done = killed.task("a")
    assert done.transaction is not None
    assert done.transaction.transactional_id.startswith(f"penstock.{killed.pipeline}.")


def test_a_reset_shows_what_is_decided_and_what_others_write(
    killed: Killed, produce: Callable[..., None], read_topic: Callable[..., Any]
) -> None:
    decided = killed.task("decided")
    killed.task("undecided")
    killed.decide(decided)
    produce(killed.topic, ["of another producer"])
    assert ending.reset(killed.client, killed.pipeline, killed.state, backfill=False) == 2
    assert values(read_topic(killed.topic)) == ["decided", "of another producer"]
    assert not killed.folder.joinpath(killed.pipeline, "queries").exists()
    with pytest.raises(decisions.AnotherDriver, match="reset or deleted"):
        killed.task("of the old driver", batch_id=1)


def test_a_reset_that_was_interrupted_is_finished_by_the_next_start(killed: Killed) -> None:
    killed.task("undecided")
    # The sinks have ended, but the machine stopped before the checkpoint was removed.
    ending.end_pipeline(killed.client, killed.pipeline)
    assert killed.state.sink_names()
    ending.finish_endings(killed.client, killed.pipeline, killed.state)
    assert killed.state.sink_names() == [] and killed.open() == []
    assert killed.state.open("out", FINGERPRINT).identity != killed.query.identity


def test_a_checkpoint_that_is_gone_leaves_nothing_open(killed: Killed) -> None:
    killed.task("undecided")
    killed.state.folder.delete()  # by hand
    fresh = killed.state.open("out", FINGERPRINT)
    ending.end_abandoned(killed.client, killed.pipeline, "elsewhere", killed.state, [fresh.name])
    assert len(killed.open()) == 1  # another place's: reported, never touched
    ending.end_abandoned(killed.client, killed.pipeline, "here", killed.state, [fresh.name])
    assert killed.open() == []


def doctor(killed: Killed, capsys: Any) -> list[dict[str, Any]]:
    capsys.readouterr()
    penstock(["doctor", "--json", "-b", killed.bootstrap])
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return [row for row in found if row["check"] == "transactions" and killed.pipeline in row["finding"]]


def test_doctor_names_whose_transaction_hides_what(killed: Killed, capsys: Any) -> None:
    killed.task("undecided")
    (row,) = doctor(killed, capsys)
    assert row["severity"] == "problem" and "nobody runs that" in row["finding"]
    assert f"{killed.topic}-0" in row["finding"] and f"pipeline delete {killed.pipeline}" in row["hint"]
    ending.register(killed.client, killed.pipeline, BACKFILL, [killed.query.name])
    (row,) = doctor(killed, capsys)
    assert "give the same `penstock pipeline backfill` again" in row["hint"]
    # A driver that gives signs of life may take its time.
    events.ensure(killed.client)
    signs = events.SignsOfLife({"bootstrap.servers": killed.bootstrap}, killed.pipeline)
    signs.tell()
    signs.close()
    assert doctor(killed, capsys) == []


def test_delete_ends_what_a_pipeline_left_and_may_be_repeated(
    killed: Killed, read_topic: Callable[..., Any], capsys: Any
) -> None:
    killed.decide(killed.task("decided"))
    there = ["--json", "-b", killed.bootstrap]
    assert penstock(["pipeline", "delete", killed.pipeline, "--yes", *there]) == 0
    assert json.loads(capsys.readouterr().out)["ended_transactions"] == 1
    assert penstock(["pipeline", "delete", killed.pipeline, "--yes", *there]) == 0
    assert values(read_topic(killed.topic)) == ["decided"]


def test_a_runner_ends_what_it_held_and_then_removes_the_checkpoint(killed: Killed) -> None:
    killed.task("undecided")
    spec = {"name": killed.pipeline, "sources": {"o": {"topic": "o"}}, "sinks": {"out": {"from": "o", "topic": "x"}}}
    runner = Runner({"bootstrap.servers": killed.bootstrap}, str(killed.folder))
    runner._end(Applied(killed.pipeline, spec, "running", 1, 0))
    assert killed.open() == [] and not killed.folder.joinpath(killed.pipeline).exists()


def test_aborting_a_decided_transaction_commits_it(killed: Killed, read_topic: Callable[..., Any], capsys: Any) -> None:
    decided, other = killed.task("decided"), killed.task("other")
    killed.decide(decided)
    assert decided.transaction is not None and other.transaction is not None
    there = ["--yes", "--json", "-b", killed.bootstrap]
    assert penstock(["txn", "abort", decided.transaction.transactional_id, *there]) == 0
    assert json.loads(capsys.readouterr().out)["committed"] is True
    assert penstock(["txn", "abort", other.transaction.transactional_id, *there]) == 0
    assert json.loads(capsys.readouterr().out)["aborted"] is True
    assert values(read_topic(killed.topic)) == ["decided"]


def test_force_aborts_even_a_decided_transaction(killed: Killed, read_topic: Callable[..., Any]) -> None:
    decided = killed.task("decided")
    killed.decide(decided)
    assert decided.transaction is not None
    force = ["--force", "--yes", "-b", killed.bootstrap]
    assert penstock(["txn", "abort", decided.transaction.transactional_id, *force]) == 0
    assert values(read_topic(killed.topic)) == []


# --- a checkpoint and what sinks know of it ---


def with_checkpoint(state: PipelineState, query: str = "out") -> None:
    """As Spark begins one."""
    state.folder.write_text(f"checkpoints/{query}/metadata", json.dumps({"id": str(uuid.uuid4())}))


def test_a_checkpoint_that_was_removed_alone_is_refused_instead_of_skipping_everything(tmp_path: Path) -> None:
    state = PipelineState(LocalStorage(str(tmp_path / "p")), "p")
    state.open("out", FINGERPRINT)
    with_checkpoint(state)
    assert state.open("out", FINGERPRINT).name == f"penstock.p.{state.open('out', FINGERPRINT).identity}"
    state.folder.delete("checkpoints/out")
    with pytest.raises(CheckpointGone, match=r"they would skip what is read again.*--reset.*--backfill"):
        state.open("out", FINGERPRINT)


def test_a_checkpoint_whose_notes_are_gone_is_refused_too(tmp_path: Path) -> None:
    state = PipelineState(LocalStorage(str(tmp_path / "p")), "p")
    state.open("out", FINGERPRINT)
    state.folder.delete("queries/out.json")
    state.open("out", FINGERPRINT)  # nothing ran yet
    with_checkpoint(state)
    state.folder.delete("queries/out.json")
    with pytest.raises(CheckpointGone, match=r"out\.json.*Put it back"):
        state.open("out", FINGERPRINT)


def test_a_reset_by_hand_does_not_bring_back_the_one_that_was_applied(tmp_path: Path) -> None:
    state = PipelineState(LocalStorage(str(tmp_path / "p")), "p")
    state.note_reset("asked for on monday")
    state.reset(backfill=False)
    assert state.last_reset() == "asked for on monday"


def test_a_sink_that_is_ahead_of_its_checkpoint_is_no_reason_to_skip() -> None:
    assert Batch("q", 3).is_done(3, "out") and not Batch("q", 3).is_done(2, "out")
    with pytest.raises(SpecError, match="has batch 7 of this query already, but the checkpoint is at batch 3"):
        Batch("q", 3).is_done(7, "out")


# --- caught up ---


class Progress:
    def __init__(self, *batches: tuple[int, str, str]) -> None:
        self.recentProgress = [
            {"batchId": number, "numInputRows": rows, "sources": [{"startOffset": start, "endOffset": end}]}
            for number, (rows, start, end) in enumerate(batches)
        ]


def test_batches_without_rows_are_no_sign_of_being_caught_up_while_the_source_moves() -> None:
    assert not is_idle(Progress((0, "10", "20"), (0, "20", "30"), (0, "30", "40")))
    assert is_idle(Progress((5, "0", "40"), (0, "40", "40"), (0, "40", "40"), (0, "40", "40")))
