"""`penstock acl` and `penstock quota` as people use them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import penstock
from penstock.cli.main import run as run_command
from penstock.testing.probes.access import SETTINGS

Rows = list[dict[str, Any]]
Run = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def broker() -> Iterator[penstock.Broker]:
    with penstock.Broker(settings=SETTINGS | {"super.users": "User:root;User:ANONYMOUS"}) as running:
        yield running


@pytest.fixture
def run(broker: penstock.Broker, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(line: str) -> tuple[int, str]:
        code = run_command([*line.split(), "--bootstrap", broker.bootstrap])
        told = capsys.readouterr()
        return code, told.out + told.err

    return call


def rows(run: Run, line: str) -> Rows:
    code, out = run(f"{line} --json")
    assert code == 0, out
    return [json.loads(one) for one in out.splitlines() if one.startswith("{")]


def test_acls_are_granted_listed_explained_and_taken_away(run: Run) -> None:
    assert run("acl set anna read topic:ord*") == (0, "User:anna may Read Topic:ord*\n")
    assert run("acl set User:anna all group:shop --host 10.0.0.1")[0] == 0
    assert run("acl set anna write topic:orders --deny")[0] == 0
    assert rows(run, "acl list --principal anna --resource topic:ord*") == [
        {"principal": "User:anna", "permission": "allow", "operation": "read", "resource": "topic:ord*", "host": "*"}
    ]
    assert len(rows(run, "acl list --principal User:anna")) == 3

    assert run("acl explain anna read topic:orders") == (0, "yes, by: User:anna may Read Topic:ord*\n")
    assert run("acl explain anna describe topic:orders")[1].startswith("yes, by: User:anna may Read")
    assert run("acl explain anna write topic:orders") == (0, "no, by: User:anna must not Write Topic:orders\n")
    assert run("acl explain bob read topic:orders") == (0, "no, no ACL allows it\n")
    assert run("acl explain root write topic:orders") == (0, "yes, it is one of the super users\n")
    assert "allow.everyone.if.no.acl.found is on" in run("acl explain bob read topic:untouched")[1]
    assert run("acl explain anna read group:shop --host 10.0.0.1")[1].startswith("yes")
    assert run("acl explain anna read group:shop")[1].startswith("no")

    assert run("acl delete --principal anna --operation read --yes") == (0, "1 ACLs deleted\n")
    assert run("acl delete --principal anna --yes") == (0, "2 ACLs deleted\n")
    assert rows(run, "acl list --principal anna") == []


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("acl set anna read orders", "topic:NAME"),
        ("acl set anna fly topic:orders", "read, write"),
        ("acl set anna write group:shop", "read, delete"),
        ("acl delete --yes", "--principal"),
        ("acl explain anna read topic:ord*", "not a pattern"),
        ("quota set anna produce=1", "user:anna"),
        ("quota set user:anna produce", "QUOTA=LIMIT"),
        ("quota set ip:10.0.0.1 produce=1", "connections"),
    ],
)
def test_wrong_input_is_answered_with_what_would_be_right(run: Run, line: str, hint: str) -> None:
    code, out = run(line)
    assert code in (2, 4) and hint in out


def test_quotas_are_set_listed_explained_and_taken_away(run: Run) -> None:
    assert run("quota set user:anna produce=1000 request=50")[0] == 0
    assert run("quota set user:*,client:shop produce=2000")[0] == 0
    assert run("quota set ip:* connections=9")[0] == 0
    assert {(row["whose"], row["quota"], row["limit"]) for row in rows(run, "quota list")} == {
        ("user:anna", "producer_byte_rate", 1000.0),
        ("user:anna", "request_percentage", 50.0),
        ("user:*,client:shop", "producer_byte_rate", 2000.0),
        ("ip:*", "connection_creation_rate", 9.0),
    }
    explained = {row["quota"]: row for row in rows(run, "quota explain --user anna --client shop")}
    assert explained["producer_byte_rate"]["by"] == "user:anna"
    assert explained["consumer_byte_rate"]["limit"] is None
    (other,) = [row for row in rows(run, "quota explain --user bob --client shop") if row["limit"] is not None]
    assert (other["by"], other["limit"]) == ("user:*,client:shop", 2000.0)
    assert run("quota delete user:anna request")[0] == 0
    for whose in ("user:anna", "user:*,client:shop", "ip:*"):
        assert run(f"quota delete {whose}")[0] == 0
    assert rows(run, "quota list") == []
    assert run("quota set user:anna produce=0")[0] == 5, "the broker says no"


def test_the_doctor_names_weak_spots(run: Run) -> None:
    run("acl set * write topic:orders")
    code, _ = run("doctor --security")
    assert code == 7, "an anonymous super user is a problem"
    broker_rows = run("doctor --security --json")[1]
    found = [json.loads(line) for line in broker_rows.splitlines() if line.startswith("{")]
    told = {row["check"]: row for row in found}
    assert any("User:ANONYMOUS is a super user" in row["finding"] for row in found)
    assert any("open to all" in row["finding"] for row in found)
    assert told["rules"]["finding"] == "User:* may Write Topic:orders"
    assert told["listeners"]["severity"] == "ok", "nobody else reaches 127.0.0.1"
    assert "default quota" in told["limits"]["finding"]
    run("acl delete --principal * --yes")
    run("quota set user:* produce=1000000000")
    found = [json.loads(line) for line in run("doctor --security --json")[1].splitlines() if line.startswith("{")]
    assert {row["check"]: row["severity"] for row in found}["rules"] == "ok"
    assert {row["check"]: row["severity"] for row in found}["limits"] == "ok"
    run("quota delete user:*")


def test_the_doctor_says_when_there_are_no_acls(capsys: pytest.CaptureFixture[str]) -> None:
    with penstock.Broker() as open_broker:
        assert run_command(["doctor", "--security", "--bootstrap", open_broker.bootstrap]) == 0
    assert "there are no ACLs" in capsys.readouterr().out
