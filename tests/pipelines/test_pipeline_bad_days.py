"""Bad days of a running pipeline: records deleted under it, a broker that is away, a full disk at its checkpoint."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.pipelines.execution import Execution, PipelineFailed, Place, run
from penstock.pipelines.spec import PipelineSpec, from_data
from penstock.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.spark
PATIENCE_S = 300.0
AWAY_S = 8.0


def copying(topic: str, **source: Any) -> PipelineSpec:
    """A pipeline of one query: the values of a topic into another one, exactly once."""
    return from_data(
        {
            "name": f"copy-{uuid.uuid4().hex[:6]}",
            "sources": {"words": {"topic": topic, "format": "string", "on_bad_record": "drop", **source}},
            "sinks": {"out": {"from": "words", "topic": f"{topic}.out", "format": "string"}},
            "trigger": "100 ms",
        }
    )


def values(messages: list[Any]) -> list[int]:
    return sorted(int(message.value()) for message in messages)


@contextlib.contextmanager
def running(spec: PipelineSpec, spark: Any, place: Place) -> Iterator[Execution]:
    execution, prepared = Execution.prepare(spec, spark, place)
    execution.start(prepared)
    try:
        yield execution
    finally:
        execution.stop()


def wait(execution: Execution, is_done: Callable[[], bool]) -> None:
    """As `penstock pipeline run` waits: a query that failed is an error here."""
    deadline = time.monotonic() + PATIENCE_S

    def should_stop() -> bool:
        assert time.monotonic() < deadline
        return is_done()

    execution.wait(lambda name, progress: None, should_stop)


def truncate(broker: BrokerProcess, topic: str, before: int) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for future in admin.delete_records([TopicPartition(topic, 0, before)]).values():
        future.result(30)


@pytest.mark.parametrize("stops", [True, False])
def test_records_deleted_under_a_running_pipeline_stop_it_or_are_passed_over(
    stops: bool,
    spark: Any,
    broker: BrokerProcess,
    tmp_path: Path,
    new_topic: Callable[..., str],
    produce: Callable[..., None],
    read_topic: Callable[..., Any],
) -> None:
    # Given a pipeline that takes a few records per batch of a long topic,
    topic = new_topic(partitions=1, label="words")
    out = new_topic(partitions=1, name=f"{topic}.out")
    produce(topic, [str(number) for number in range(2005)])
    spec = copying(topic, max_rows_per_trigger=1 if stops else 50, fail_on_data_loss=stops)
    place = Place({"bootstrap.servers": broker.bootstrap}, str(tmp_path / "state"))
    with running(spec, spark, place) as execution:
        wait(execution, lambda: bool(read_topic(out)))
        # when most of what it has not read yet is deleted,
        truncate(broker, topic, 2000)
        # then it stops with one line that says what is gone, or goes on with what is there.
        if stops:
            with pytest.raises(PipelineFailed, match=r"the log begins at 2000") as failure:
                wait(execution, lambda: False)
            assert "failOnDataLoss=false" in str(failure.value) and "\n" not in str(failure.value)
        else:
            wait(execution, lambda: 2004 in values(read_topic(out)))
    found = values(read_topic(out))
    before = [number for number in found if number < 2000]
    assert before == list(range(len(before)))
    assert found[len(before) :] == ([] if stops else list(range(2000, 2005)))


def test_caught_up_means_the_end_even_behind_a_long_stretch_of_aborted_records(
    spark: Any,
    broker: BrokerProcess,
    tmp_path: Path,
    new_topic: Callable[..., str],
    produce: Callable[..., None],
    read_topic: Callable[..., Any],
) -> None:
    from confluent_kafka import Producer

    topic = new_topic(partitions=1, label="words")
    out = new_topic(partitions=1, name=f"{topic}.out")
    produce(topic, [str(number) for number in range(10)])
    aborting = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic, "log_level": 0})
    aborting.init_transactions(30)
    aborting.begin_transaction()
    for _ in range(60):
        aborting.produce(topic, b"777")
    aborting.flush(30)
    aborting.abort_transaction(30)
    produce(topic, [str(number) for number in range(10, 20)])
    place = Place({"bootstrap.servers": broker.bootstrap}, str(tmp_path / "state"))
    run(copying(topic, max_rows_per_trigger=12), spark, place, until_caught_up=True)
    assert values(read_topic(out)) == list(range(20))


def test_a_reader_that_passes_over_deleted_records_says_which(
    broker: BrokerProcess,
    new_topic: Callable[..., str],
    produce: Callable[..., None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    from penstock.pipelines.spark.options import SourceOptions
    from penstock.pipelines.spark.source_fetch import read_range
    from penstock.pipelines.spark.source_offsets import OffsetRange

    topic = new_topic(partitions=1, label="words")
    produce(topic, [str(number) for number in range(10)])
    truncate(broker, topic, 7)
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "failOnDataLoss": "false"}
    with caplog.at_level(logging.WARNING):
        pieces = read_range(SourceOptions.parse(options, streaming=True), OffsetRange(topic, 0, 2, 10))
        read = [int(value.as_py()) for piece in pieces for value in piece.column("value")]
    assert read == [7, 8, 9]
    assert f"{topic}-0: offsets 2 to 6 were deleted" in caplog.text


def test_a_broker_that_is_away_for_a_while(
    spark: Any, tmp_path: Path, produce: Callable[..., None], read_topic: Callable[..., Any]
) -> None:
    with BrokerProcess(tmp_path / "broker", {"num.partitions": "1"}) as broker:
        settings = {"bootstrap.servers": broker.bootstrap}
        produce("words", [str(number) for number in range(20)], **settings)
        place = Place(settings, str(tmp_path / "state"))
        with running(copying("words"), spark, place) as execution:
            wait(execution, lambda: len(_written(broker, read_topic)) >= 20)
            # When the broker is gone for a while in which the pipeline wants to know what is new,
            broker.kill()
            back_at = time.monotonic() + AWAY_S
            wait(execution, lambda: time.monotonic() > back_at)
            broker.start()
            produce("words", [str(number) for number in range(20, 40)], **settings)
            # then it goes on where it was.
            wait(execution, lambda: len(_written(broker, read_topic)) >= 40)
        assert values(_written(broker, read_topic)) == list(range(40))


def _written(broker: BrokerProcess, read_topic: Callable[..., Any]) -> list[Any]:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    if "words.out" not in admin.list_topics(timeout=30).topics:
        return []
    found: list[Any] = read_topic("words.out", broker.bootstrap)
    return found


def test_clients_of_spark_wait_longer_than_a_minute_for_a_broker() -> None:
    from penstock.pipelines.spark.clients import client_for

    client = client_for({"bootstrap.servers": "127.0.0.1:1"})
    try:
        assert client.run(_total_timeout_s) > 60
    finally:
        client.close()


async def _total_timeout_s(client: Any) -> float:
    return float(client.retry.total_timeout_s)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("a file system of its own needs root")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_at_the_checkpoint_stops_the_pipeline_and_nothing_is_lost_or_twice(
    spark: Any,
    broker: BrokerProcess,
    small_disk: Path,
    new_topic: Callable[..., str],
    produce: Callable[..., None],
    read_topic: Callable[..., Any],
) -> None:
    topic = new_topic(partitions=1, label="words")
    out = new_topic(partitions=1, name=f"{topic}.out")
    spec = copying(topic)
    place = Place({"bootstrap.servers": broker.bootstrap}, str(small_disk / "state"))
    produce(topic, [str(number) for number in range(10)])
    run(spec, spark, place, until_caught_up=True)
    # Given a disk that is full by now,
    _fill(small_disk / "rubbish")
    produce(topic, [str(number) for number in range(10, 20)])
    # when the pipeline goes on, it stops and says why;
    with pytest.raises(PipelineFailed, match=r"(?i)no space left") as failure:
        run(spec, spark, place, until_caught_up=True)
    assert "\n" not in str(failure.value)
    # once there is room again, it takes up exactly what was left.
    (small_disk / "rubbish").unlink()
    run(spec, spark, place, until_caught_up=True)
    assert values(read_topic(out)) == list(range(20))


class EndsBetweenTwoLooks:
    """A query of Spark that fails right after it was asked whether it has."""

    name = "out"
    lastProgress = None  # noqa: N815 - Spark's name
    isActive = True  # noqa: N815

    def __init__(self) -> None:
        self._error: Exception | None = None

    def exception(self) -> Exception | None:
        error, self._error = self._error, RuntimeError("No space left on device")
        self.isActive = False
        return error

    def stop(self) -> None:
        self.isActive = False


def test_a_failure_is_seen_whenever_it_happens() -> None:
    execution = Execution(copying("words"), None, Place({}, "nowhere"))
    execution.running["out"] = EndsBetweenTwoLooks()
    with pytest.raises(PipelineFailed, match="No space left on device"):
        execution.wait(lambda _name, _progress: None, lambda: False)


def _fill(file: Path) -> None:
    with contextlib.suppress(OSError), file.open("wb", buffering=0) as rubbish:
        while rubbish.write(bytes(4096)) == 4096:
            pass
