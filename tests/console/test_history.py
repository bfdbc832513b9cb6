"""Figures over a restart, kept by one of several consoles; several clusters in one console; life under a base path."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer
from console_world import TOKEN, start_console, stop

import penstock
from penstock.console import nicegui_setup
from penstock.console.cluster import ConsoleSession
from penstock.console.history import History
from penstock.console.history_keepers import TOPIC, FolderKeeper, TopicKeeper
from penstock.console.snapshot import look
from penstock.operate.topics import create_topics

SETTINGS = {"group.initial.rebalance.delay.ms": "0"}


def _until(condition: Callable[[], Any]) -> None:
    while not condition():
        time.sleep(0.1)


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, penstock.Broker]]:
    folders = {name: tmp_path_factory.mktemp(name) for name in ("one", "two")}
    with (
        penstock.Broker(folders["one"], settings=SETTINGS) as one,
        penstock.Broker(folders["two"], settings=SETTINGS) as two,
    ):
        yield {"one": one, "two": two}


def test_one_of_several_consoles_writes_and_another_takes_over(clusters: dict[str, penstock.Broker]) -> None:
    session = ConsoleSession({"bootstrap.servers": clusters["one"].bootstrap})
    first, second = TopicKeeper(session), TopicKeeper(session)
    try:
        _until(lambda: first.is_writer != second.is_writer)
        writer, other = (first, second) if first.is_writer else (second, first)
        now = int(time.time() * 1000)
        for keeper in (other, writer):
            keeper.keep(now - 1_800_000, {"in": 42.5})
        assert [values["in"] for _, values in writer.load(0)] == [42.5]
        writer.close()
        _until(lambda: other.is_writer)
        other.keep(now - 1_740_000, {"in": 43.5})
        assert [values["in"] for _, values in other.load(0)] == [42.5, 43.5]
    finally:
        first.close()
        second.close()
        session.close()


def test_a_look_right_after_another_makes_no_rate_of_the_moment_between(clusters: dict[str, penstock.Broker]) -> None:
    """Every change is followed by a look at once; charts showed peaks that nobody had written."""
    session = ConsoleSession({"bootstrap.servers": clusters["two"].bootstrap})
    producer = Producer({"bootstrap.servers": clusters["two"].bootstrap})

    def write() -> None:
        for _ in range(500):
            producer.produce("steady", b"x")
        assert producer.flush(30) == 0

    try:
        write()
        first = look(session, None)
        write()
        second = look(session, first)
        assert second.topics["steady"].rate is None and second.figures == {}
        earlier = dataclasses.replace(first, at_ms=first.at_ms - 100_000)
        third = look(session, earlier)
        assert 4 < (third.topics["steady"].rate or 0) <= 5
        write()
        fourth = look(session, third)
        assert 9 < (fourth.topics["steady"].rate or 0) <= 10 and 9 < fourth.broker_rates[1][0] <= 10
    finally:
        session.close()


def test_figures_of_a_foreign_cluster_are_kept_in_the_folder(tmp_path: Path) -> None:
    now = [600_000_000_000]
    history = History(lambda: now[0])
    keeper = FolderKeeper(tmp_path / "figures")
    for _ in range(3):
        now[0] += 60_000
        finished = history.add(now[0], {"topic:orders:in": 7.0})
        if finished:
            keeper.keep(now[0], finished)
    (file,) = (tmp_path / "figures").iterdir()
    with file.open("a") as damaged:
        damaged.write('{"at_ms": 1, "val')  # the process was killed while it wrote
    anew = History(lambda: now[0])
    anew.load(FolderKeeper(tmp_path / "figures"))
    assert [value for _, value in anew.points("topic:orders:in", 3600)] == [7.0, 7.0]


def test_two_clusters_under_a_base_path_with_charts_of_before(
    clusters: dict[str, penstock.Broker], tmp_path: Path
) -> None:
    for name, broker in clusters.items():
        session = ConsoleSession({"bootstrap.servers": broker.bootstrap})
        create_topics(session, [f"only-in-{name}"], 1, 1, None)
        keeper = TopicKeeper(session)
        _until(lambda keeper=keeper: keeper.is_writer)
        keeper.keep(int(time.time() * 1000) - 1_700_000, {"in": 44.5})
        keeper.close()
        session.close()
    profiles = "".join(f'[{name}]\n"bootstrap.servers" = "{b.bootstrap}"\n' for name, b in clusters.items())
    (tmp_path / "profiles.toml").write_text(profiles)
    process, address = start_console(tmp_path, "-p", "one", "-p", "two", "--base-path", "/kafka")
    try:
        friend = httpx.Client(headers={"authorization": f"Bearer {TOKEN}"}, timeout=60)
        assert [row["name"] for row in friend.get(f"{address}/api/v1/clusters").json()] == ["one", "two"]
        figures = f"{address}/api/v1/clusters/one/figures"
        friend.get(f"{address}/api/v1/clusters/one/overview")
        _until(lambda: friend.get(figures, params={"name": "in", "seconds": 7200}).json()["in"])
        points = friend.get(figures, params={"name": "in", "seconds": 7200}).json()["in"]
        assert 44.5 in [value for _, value in points]
        for name, other in (("one", "two"), ("two", "one")):
            assert friend.get(f"{address}/api/v1/clusters/{name}/topics/only-in-{name}").status_code == 200
            assert friend.get(f"{address}/api/v1/clusters/{name}/topics/only-in-{other}").status_code == 404
            listed = f"{address}/api/v1/clusters/{name}/topics?internal=true"
            _until(lambda listed=listed: TOPIC in {row["name"] for row in friend.get(listed).json()["rows"]})
        friend.close()
    finally:
        stop(process)


def test_an_address_that_is_not_there_is_not_logged() -> None:
    def record(level: int, words: str) -> logging.LogRecord:
        return logging.LogRecord("nicegui", level, "", 0, words, None, None)

    assert not nicegui_setup._is_ours_to_know(record(logging.WARNING, "http://h/nothing?password=hush not found"))
    assert nicegui_setup._is_ours_to_know(record(logging.ERROR, "a page failed"))
