"""Quotas: the two meters by themselves, whose limit holds for whom, and a broker that slows its clients down."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

import penstock
from penstock.security.quota_limits import PRODUCE, QuotaLimits
from penstock.security.quota_nodes import config_key_of, entity_of, quotas_in
from penstock.security.quota_rates import SampledRate, TokenBucket
from penstock.testing.probes.access import RoleSession
from penstock.testing.probes.quotas import alter
from penstock.testing.probes.records import batch

HERE = "127.0.0.1"
EXCEEDED = 89


def test_a_rate_within_its_bound_demands_no_pause() -> None:
    rate = SampledRate(bound=100, windows=11, window_s=1, now=0)
    assert rate.record(1000, now=0.0) == 0, "ten windows' worth is spread over them"
    assert rate.record(100, now=0.5) == pytest.approx(0.5)


def test_a_pause_is_as_long_as_the_rate_needs_to_come_down() -> None:
    rate = SampledRate(bound=100, windows=11, window_s=1, now=0)
    pause = rate.record(3000, now=0.0)
    assert pause == pytest.approx(20.0)
    assert rate.rate(now=pause) <= 150
    assert rate.record(1, now=40.0) == 0, "old windows are forgotten"


def test_what_is_taken_back_does_not_count() -> None:
    rate = SampledRate(bound=10, windows=11, window_s=1, now=0)
    assert rate.record(500, now=0.0) > 0
    rate.take_back(500)
    assert rate.record(1, now=0.1) == 0


def test_a_bucket_lets_bursts_pass_and_waits_for_what_was_overdrawn() -> None:
    bucket = TokenBucket(bound=2, windows=11, window_s=1, now=0)
    assert bucket.record(22, now=0.0) == 0, "a full bucket"
    assert bucket.record(4, now=0.0) == pytest.approx(2.0)
    assert bucket.pause(now=1.0) == pytest.approx(1.0)
    assert bucket.pause(now=2.0) == 0


def test_the_most_particular_limit_holds() -> None:
    configs = {
        ("user", "anna/clients/app"): {PRODUCE: "1"},
        ("user", "anna/clients/<default>"): {PRODUCE: "2"},
        ("user", "anna"): {PRODUCE: "3"},
        ("user", "<default>/clients/app"): {PRODUCE: "4"},
        ("user", "<default>/clients/<default>"): {PRODUCE: "5"},
        ("user", "<default>"): {PRODUCE: "6"},
        ("client", "app"): {PRODUCE: "7"},
        ("client", "<default>"): {PRODUCE: "8"},
    }
    asked = [("anna", "app"), ("anna", "x"), ("anna", "x"), ("bob", "app"), ("bob", "x"), ("bob", "x"), ("b", "app")]
    keys = list(configs)
    for count, (user, client) in enumerate([*asked, ("b", "x")]):
        left = {key: configs[key] for key in keys[count:]}
        limit = QuotaLimits(quotas_in(left)).of_client(PRODUCE, user, client)
        assert limit is not None and limit.bound == count + 1
        shared_by_clients = count in (2, 5)
        shared_by_users = count in (6, 7)
        assert limit.client_id == ("" if shared_by_clients else client)
        assert limit.user == ("" if shared_by_users else user)
    assert QuotaLimits().of_client(PRODUCE, "anna", "app") is None


@pytest.mark.parametrize(
    ("entity", "key"),
    [
        ({"user": "a b/c"}, ("user", "a%20b%2Fc")),
        ({"user": None}, ("user", "<default>")),
        ({"user": "anna", "client-id": None}, ("user", "anna/clients/<default>")),
        ({"client-id": "app*"}, ("client", "app%2A")),
        ({"ip": "10.0.0.1"}, ("ip", "10.0.0.1")),
        ({"ip": None}, ("ip", "<default>")),
    ],
)
def test_entities_stand_where_kafka_puts_them(entity: dict[str, str | None], key: tuple[str, str]) -> None:
    assert config_key_of(entity) == key
    assert entity_of(key) == entity


@pytest.fixture
def broker() -> Iterator[penstock.Broker]:
    with penstock.Broker(settings={"broker.id": "1"}) as running:
        yield running


@pytest.fixture
def session(broker: penstock.Broker) -> Iterator[RoleSession]:
    client = RoleSession(broker.port, HERE)
    yield client
    client.close()


def produce(session: RoleSession, topic: str, size: int) -> Any:
    row = {"index": 0, "records": bytes(batch(value=b"x" * size))}
    return session.request(
        "produce", 9, acks=-1, timeout_ms=5000, topic_data=[{"name": topic, "partition_data": [row]}]
    )


def test_a_producer_over_its_quota_is_told_and_not_read(broker: penstock.Broker, session: RoleSession) -> None:
    topic = session.topic()
    assert [produce(session, topic, 10_000).throttle_time_ms for _ in range(2)] == [0, 0]
    assert alter(session, {"client-id": "probe"}, {"producer_byte_rate": 10_000}) == [0]
    assert produce(session, topic, 90_000).throttle_time_ms == 0, "ten windows may be used at once"
    throttled = produce(session, topic, 20_000)
    assert throttled.responses[0].partition_responses[0].error_code == 0, "it is taken all the same"
    assert 500 < throttled.throttle_time_ms < 5000
    began = time.monotonic()
    assert produce(session, topic, 1).throttle_time_ms >= 0
    assert time.monotonic() - began >= throttled.throttle_time_ms / 1000 * 0.9, "the connection was not read meanwhile"
    pause_seconds = produce(session, topic, 60_000).throttle_time_ms / 1000
    other = RoleSession(broker.port, HERE)
    began = time.monotonic()
    other.request("metadata", 12, topics=[])
    assert time.monotonic() - began < pause_seconds, "others are read"
    assert alter(other, {"client-id": "probe"}, {"producer_byte_rate": None}) == [0]
    assert produce(other, topic, 500_000).throttle_time_ms == 0
    other.close()
    assert broker._broker.quotas is None, "nothing is metered any more"


def test_a_consumer_over_its_quota_gets_nothing_for_a_while(session: RoleSession) -> None:
    topic = session.topic()
    for _ in range(5):
        produce(session, topic, 20_000)
    assert alter(session, {"user": "ANONYMOUS"}, {"consumer_byte_rate": 4000}) == [0]

    def fetch(offset: int) -> Any:
        row = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": offset, "partition_max_bytes": 1_000_000}
        return session.request(
            "fetch", 12, replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=10_000_000, session_epoch=-1,
            topics=[{"topic": topic, "partitions": [row]}],
        )  # fmt: skip

    first = fetch(0)
    assert first.throttle_time_ms == 0 and len(first.responses[0].partitions[0].records) < 45_000, "one span's worth"
    second = fetch(2)
    assert second.throttle_time_ms > 0 and second.responses == []


def test_changes_of_topics_have_a_quota(session: RoleSession) -> None:
    assert alter(session, {"user": "ANONYMOUS"}, {"controller_mutation_rate": 1}) == [0]

    def create(version: int, name: str, partitions: int) -> tuple[int, int]:
        answer = session.request(
            "create_topics",
            version,
            timeout_ms=5000,
            topics=[{"name": name, "num_partitions": partitions, "replication_factor": 1}],
        )
        return answer.topics[0].error_code, answer.throttle_time_ms

    assert create(7, "first", 12) == (0, 0), "a burst may overdraw"
    code, pause_ms = create(7, "second", 1)
    assert code == EXCEEDED and 0 < pause_ms <= 1000
    answer = session.request("delete_topics", 5, timeout_ms=5000, topic_names=["first"])
    assert answer.responses[0].error_code in (0, EXCEEDED)
    code, pause_ms = create(5, "third", 5)
    assert code == 0 and pause_ms > 0, "old clients are only slowed down"


def test_the_time_that_requests_take_has_a_quota(session: RoleSession) -> None:
    assert alter(session, {"client-id": "probe"}, {"request_percentage": 0.01}) == [0]
    # A thousandth of a second in ten: some requests use that up, however fast the machine is.
    paused = next(p for _ in range(5000) if (p := session.request("describe_cluster", 0).throttle_time_ms))
    assert 0 < paused <= 1000
    assert 0 <= session.request("metadata", 12, topics=None).throttle_time_ms <= 1000


def test_an_address_has_a_quota_of_connections(broker: penstock.Broker, session: RoleSession) -> None:
    assert alter(session, {"ip": "127.0.0.8"}, {"connection_creation_rate": 1}) == [0]
    refused = 0
    for _ in range(15):
        client = RoleSession(broker.port, "127.0.0.8")
        try:
            client.request("metadata", 12, topics=[])
        except (TimeoutError, ConnectionError):
            refused += 1
            break
        finally:
            client.close()
    assert refused == 1
    session.request("metadata", 12, topics=[])
    elsewhere = RoleSession(broker.port, "127.0.0.7")
    elsewhere.request("metadata", 12, topics=[])
    elsewhere.close()


def test_quotas_survive_a_restart(tmp_path: Any) -> None:
    for _ in range(2):
        with penstock.Broker(tmp_path / "data", settings={"broker.id": "1"}) as broker:
            session = RoleSession(broker.port, HERE)
            quotas = broker._broker.quotas
            if quotas is None:
                alter(session, {"user": "anna"}, {"producer_byte_rate": 123})
                quotas = broker._broker.quotas
            limit = quotas.limits.of_client(PRODUCE, "anna", "app")
            assert limit.bound == 123
            session.close()
