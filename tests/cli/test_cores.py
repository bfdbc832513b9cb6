"""Several brokers of one machine from one file: what each makes of it, and what is refused."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from penstock.base.settings import Settings, SettingsError
from penstock.cli import cores
from penstock.cli.cores import check, settings_of_core
from penstock.operate.errors import UserError

FILE = {
    "broker.id": "10",
    "listeners": "PLAINTEXT://:9092,SSL://:9095",
    "advertised.listeners": "PLAINTEXT://a.example:9092,SSL://a.example:9095",
    "log.dirs": "/data/one,/data/two/",
    "penstock.metrics.listener": "127.0.0.1:9644",
    "zookeeper.connect": "zk:2181",
}


def test_the_first_broker_has_exactly_what_the_file_says() -> None:
    first = settings_of_core(FILE, 0)
    assert first == {**FILE, "penstock.machine": socket.gethostname()}


def test_ids_ports_and_folders_follow_each_other_and_never_meet() -> None:
    third = settings_of_core(FILE, 2)
    assert third["broker.id"] == "12"
    assert third["listeners"] == "PLAINTEXT://:9100,SSL://:9103"  # two listeners span four ports
    assert third["advertised.listeners"] == "PLAINTEXT://a.example:9100,SSL://a.example:9103"
    assert third["log.dirs"] == "/data/one.core-2,/data/two.core-2"
    assert third["penstock.metrics.listener"] == "127.0.0.1:9646"
    everything = [settings_of_core(FILE, core) for core in range(8)]
    ports = [entry.rpartition(":")[2] for settings in everything for entry in settings["listeners"].split(",")]
    assert len(set(ports)) == len(ports) == 16


def test_the_number_of_a_broker_stands_where_the_file_wants_it() -> None:
    given = {
        "node.id": "1${core}",
        "listeners": "PLAINTEXT://:909${core}",
        "log.dirs": "/disk${core}/log",
        "penstock.machine": "here",
    }
    second = settings_of_core(given, 1)
    assert second == {
        "node.id": "11",
        "listeners": "PLAINTEXT://:9091",
        "log.dirs": "/disk1/log",
        "penstock.machine": "here",
    }


def test_a_file_that_says_nothing_gives_brokers_that_do_not_meet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cores, "_FOLDER", str(tmp_path))  # the usual one may be somebody's
    first, second = (Settings(settings_of_core({"zookeeper.connect": "zk:2181"}, core)) for core in (0, 1))
    assert (first.node_id, second.node_id) == (0, 1)
    assert (first.listeners[0].port, second.listeners[0].port) == (9092, 9093)
    assert set(first.log_dirs).isdisjoint(second.log_dirs)


def test_several_brokers_need_zookeeper_and_are_told_the_way() -> None:
    with pytest.raises(UserError, match="several brokers need ZooKeeper") as refused:
        check({"log.dirs": "/data"}, 2)
    assert "penstock store migrate --to zookeeper" in str(refused.value.hint)
    check({"log.dirs": "/data"}, 1)


def test_fewer_brokers_are_refused_while_the_others_hold_replicas(tmp_path: Path) -> None:
    given = {**FILE, "log.dirs": str(tmp_path / "log")}
    check(given, 1)
    (tmp_path / "log.core-3" / "orders-0").mkdir(parents=True)
    check(given, 4)
    with pytest.raises(UserError, match="broker 3 of this machine holds 1 replicas") as refused:
        check(given, 3)
    assert "--cores 4" in str(refused.value.hint)


@pytest.mark.parametrize("name, text", [("broker.id", "x"), ("listeners", "PLAINTEXT://:port")])
def test_what_cannot_be_counted_up_is_named(name: str, text: str) -> None:
    with pytest.raises(UserError, match=name):
        settings_of_core({**FILE, name: text}, 1)


def test_an_id_that_is_said_twice_counts_up_twice() -> None:
    given = {"zookeeper.connect": "zk:2181", "node.id": "3", "broker.id": "3"}
    assert [Settings(settings_of_core(given, core)).node_id for core in range(3)] == [3, 4, 5]


def test_a_broker_that_was_given_its_id_keeps_it_when_it_becomes_the_first_of_several(tmp_path: Path) -> None:
    given = {"zookeeper.connect": "zk:2181", "log.dirs": str(tmp_path / "log")}
    (tmp_path / "log").mkdir()
    meta = tmp_path / "log" / "meta.properties"
    for said in ({}, {"broker.id": "-1"}):
        meta.write_text("broker.id=7\n")
        ids = [Settings(settings_of_core({**given, **said}, core)).node_id for core in range(3)]
        assert ids == [7, 8, 9]
        meta.write_text("broker.id=1001\n")  # by the cluster, which gives the others theirs
        ids = [Settings(settings_of_core({**given, **said}, core)).node_id for core in range(3)]
        assert ids == [-1, -1, -1]
    meta.unlink()
    assert [Settings(settings_of_core(given, core)).node_id for core in range(2)] == [0, 1]
    given["broker.id"] = "-1"
    assert [Settings(settings_of_core(given, core)).node_id for core in range(2)] == [-1, -1]


@pytest.mark.parametrize(
    "wrong, what",
    [
        (
            {"penstock.metrics.listener": "127.0.0.1:9098"},
            "port 9099 would be taken twice, by broker 1 and by broker 1",
        ),
        (
            {"broker.id": "1", "penstock.metrics.listener": "http://127.0.0.1:9100"},
            "port 9100 would be taken twice, by broker 0 and by broker 2",
        ),
        ({"listeners": "PLAINTEXT://:9092,SSL://:909${core}"}, "port 9092"),
        ({"log.dirs": "/data/one,/data/one.core-1"}, "/data/one.core-1"),
        ({"listeners": "PLAINTEXT://:65534", "advertised.listeners": "PLAINTEXT://a:9092"}, "65536"),
    ],
)
def test_brokers_that_would_meet_are_refused_before_the_first_one_starts(wrong: dict[str, str], what: str) -> None:
    with pytest.raises((UserError, SettingsError), match=what):
        check({**FILE, **wrong}, 3)


def test_the_same_port_of_another_address_is_another_port() -> None:
    check({**FILE, "listeners": "PLAINTEXT://10.0.0.1:9092,SSL://10.0.0.1:9095"}, 3)
    check({**FILE, "listeners": "PLAINTEXT://10.0.0.1:9642,SSL://10.0.0.1:9645"}, 3)
