"""Every client API, asked by roles that lack one right or another: the same answers as Apache Kafka's, error by error,
field by field; and who may do nothing changes nothing."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import penstock
from penstock.testing import peers
from penstock.testing.probes import access


def _ours() -> dict[str, dict[str, Any]]:
    with penstock.Broker(settings=access.SETTINGS | {"broker.id": "1"}) as broker:
        return access.run(broker.port)


def _theirs() -> dict[str, dict[str, Any]]:
    with peers.apache_kafka(heap="512m", settings=access.SETTINGS) as kafka:
        return access.run(kafka.ports[0])


# It has just deleted its topic, and Kafka goes on listing that for a moment.
UNTIMED = {("deleter", "all topics")}


@pytest.mark.java
def test_each_role_gets_kafkas_answer_from_each_api() -> None:
    with ThreadPoolExecutor(2) as both:
        kafka, penstock_ = both.submit(_theirs), both.submit(_ours)
        try:
            theirs = kafka.result()
        except peers.PeerUnavailable as reason:
            pytest.skip(str(reason))
        ours = penstock_.result()

    differing = {
        f"{role}: {name}": (ours[role][name], answer)
        for role, answers in theirs.items()
        for name, answer in answers.items()
        if _comparable(ours[role][name]) != _comparable(answer)
    }
    assert not differing, json.dumps(differing, default=str, indent=1)
    assert ours["nobody"]["changed nothing"] is True
    assert sum(map(len, theirs.values())) > 750


def test_who_may_do_nothing_is_refused_by_every_api_and_changes_nothing() -> None:
    """Without a Kafka to compare with: no answer to `nobody` is free of an authorization error."""
    with penstock.Broker(settings=access.SETTINGS | {"broker.id": "1"}) as broker:
        answers = access.run(broker.port, roles=("nobody",))["nobody"]
    assert answers.pop("changed nothing") is True
    harmless = {"describe cluster", "all topics", "all groups", "all transactions"}
    for name, answer in answers.items():
        if name not in harmless:
            assert _codes(answer) & {29, 30, 31, 53}, (name, answer)
    assert answers["all topics"] == answers["all groups"] == answers["all transactions"] == []
    assert answers["describe cluster"]["cluster_authorized_operations"] == 0


def _codes(answer: Any) -> set[int]:
    if isinstance(answer, dict):
        own = {value for key, value in answer.items() if key.endswith("error_code") and value}
        return own.union(*map(_codes, answer.values()))
    return set().union(*map(_codes, answer)) if isinstance(answer, list) else set()


def _comparable(answer: Any) -> Any:
    return json.loads(json.dumps(answer, default=str))
