"""A running broker with ACLs: what is taken away is gone at once, on open connections too; refusals are on record."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest

import penstock
from penstock.base.settings import Settings, SettingsError
from penstock.testing.probes.access import (
    ADMIN_HOST,
    ALL,
    GROUP,
    READ,
    SETTINGS,
    TOPIC,
    WRITE,
    RoleSession,
    everything_to_admin,
    grant,
)
from penstock.testing.probes.access_requests import ANY_ACL
from penstock.testing.probes.records import batch

FORBIDDEN = 29
GUEST = "127.0.0.9"


@pytest.fixture
def broker() -> Iterator[penstock.Broker]:
    with penstock.Broker(settings=SETTINGS | {"broker.id": "1"}) as running:
        yield running


@pytest.fixture
def admin(broker: penstock.Broker) -> Iterator[RoleSession]:
    session = RoleSession(broker.port, ADMIN_HOST)
    everything_to_admin(session)
    yield session
    session.close()


@pytest.fixture
def guest(broker: penstock.Broker) -> Iterator[RoleSession]:
    session = RoleSession(broker.port, GUEST)
    yield session
    session.close()


def produce(session: RoleSession, topic: str) -> int:
    row = {"index": 0, "records": bytes(batch())}
    answer = session.request(
        "produce", 9, acks=-1, timeout_ms=5000, topic_data=[{"name": topic, "partition_data": [row]}]
    )
    return int(answer.responses[0].partition_responses[0].error_code)


def fetch_request(topic: str, max_wait_ms: int, session_id: int = 0, epoch: int = -1) -> dict[str, Any]:
    row = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "partition_max_bytes": 1000}
    return {
        "replica_id": -1,
        "max_wait_ms": max_wait_ms,
        "min_bytes": 1,
        "max_bytes": 100_000,
        "session_id": session_id,
        "session_epoch": epoch,
        "topics": [{"topic": topic, "partitions": [row]}] if epoch <= 0 else [],
    }


def take_away(admin: RoleSession, host: str = GUEST) -> int:
    answer = admin.request("delete_acls", 3, filters=[ANY_ACL | {"host_filter": host}])
    return len(answer.filter_results[0].matching_acls)


def test_a_producer_that_loses_its_right_is_refused_with_its_next_request(
    admin: RoleSession, guest: RoleSession
) -> None:
    topic = admin.topic()
    assert produce(guest, topic) == FORBIDDEN
    grant(admin, GUEST, [(TOPIC, topic, WRITE)])
    # The second and third go the short way of a producer that says the same again and again.
    assert [produce(guest, topic) for _ in range(3)] == [0, 0, 0]
    assert take_away(admin) == 1
    assert produce(guest, topic) == FORBIDDEN
    grant(admin, GUEST, [(TOPIC, topic, WRITE)])
    assert produce(guest, topic) == 0


def test_a_parked_fetch_ends_when_its_right_is_taken_away(admin: RoleSession, guest: RoleSession) -> None:
    from penstock.testing.probes.access import build

    topic = admin.topic()
    grant(admin, GUEST, [(TOPIC, topic, READ)])
    guest.send("fetch", 12, build("fetch", 12, fetch_request(topic, max_wait_ms=60_000)))
    other = RoleSession(guest.port, ADMIN_HOST)
    other.send("fetch", 12, build("fetch", 12, fetch_request(topic, max_wait_ms=60_000)))
    assert take_away(admin) == 1
    began = time.monotonic()
    from penstock.protocol import messages

    answer = messages.decode_response(1, 12, guest.read_raw(), 5)
    assert answer.responses[0].partitions[0].error_code == FORBIDDEN
    assert time.monotonic() - began < 30, "it did not wait for its minute to pass"
    with other.silence(0.3), pytest.raises(TimeoutError):
        other.read_raw()  # whose rights are as before waits on
    other.close()


def test_a_fetch_session_does_not_outlive_the_right(admin: RoleSession, guest: RoleSession) -> None:
    topic = admin.topic()
    grant(admin, GUEST, [(TOPIC, topic, READ)])
    first = guest.request("fetch", 12, **fetch_request(topic, 0, 0, 0))
    assert first.session_id > 0 and first.responses[0].partitions[0].error_code == 0
    take_away(admin)
    second = guest.request("fetch", 12, **fetch_request(topic, 0, first.session_id, 1))
    assert second.responses[0].partitions[0].error_code == FORBIDDEN


def test_a_group_member_that_loses_its_right_is_told_so(admin: RoleSession, guest: RoleSession) -> None:
    admin.request("find_coordinator", 4, key_type=0, coordinator_keys=["g"])
    grant(admin, GUEST, [(GROUP, "g", READ)])
    assert guest.request("heartbeat", 3, group_id="g", generation_id=1, member_id="m").error_code == 25
    take_away(admin)
    assert guest.request("heartbeat", 3, group_id="g", generation_id=1, member_id="m").error_code == 30


def test_refusals_are_on_record_and_cannot_fill_the_log(
    broker: penstock.Broker, admin: RoleSession, guest: RoleSession, caplog: pytest.LogCaptureFixture
) -> None:
    topic = admin.topic()
    with caplog.at_level(logging.INFO, "penstock.security.audit"):
        for _ in range(50):
            assert produce(guest, topic) == FORBIDDEN
        produce(guest, "evil\nname " + "x" * 1000)
    lines = [record.getMessage() for record in caplog.records if record.name == "penstock.security.audit"]
    assert lines[0] == f"denied principal=User:ANONYMOUS address={GUEST} operation=WRITE resource=TOPIC:{topic}"
    assert len(lines) == 2 and "\n" not in lines[1] and len(lines[1]) < 400
    denied = broker._broker.metrics.cell("authorization_denied", "WRITE").value
    assert denied == 51


def test_super_users_and_the_rest(tmp_path: Any) -> None:
    settings = SETTINGS | {"allow.everyone.if.no.acl.found": "false"}
    with penstock.Broker(settings=settings) as closed:
        session = RoleSession(closed.port, ADMIN_HOST)
        answer = session.request("create_topics", 7, topics=[{"name": "t", "num_partitions": 1}])
        assert answer.topics[0].error_code == FORBIDDEN
        session.close()
    with penstock.Broker(settings=settings | {"super.users": "User:root;User:ANONYMOUS"}) as opened:
        session = RoleSession(opened.port, ADMIN_HOST)
        grant(session, "*", [(TOPIC, "*", ALL)], permission=2)
        session.topic()  # also what is denied to all
        session.close()


def test_acls_survive_a_restart(tmp_path: Any) -> None:
    settings = SETTINGS | {"super.users": "User:root"}
    with penstock.Broker(tmp_path / "data", settings=settings) as broker:
        admin = RoleSession(broker.port, ADMIN_HOST)
        everything_to_admin(admin)
        topic = admin.topic()
        admin.close()
    with penstock.Broker(tmp_path / "data", settings=settings) as broker:
        guest, admin = RoleSession(broker.port, GUEST), RoleSession(broker.port, ADMIN_HOST)
        assert produce(guest, topic) == FORBIDDEN
        assert produce(admin, topic) == 0
        guest.close()
        admin.close()


def test_without_an_authorizer_the_acl_apis_say_so() -> None:
    with penstock.Broker() as broker:
        session = RoleSession(broker.port, ADMIN_HOST)
        assert session.request("describe_acls", 3, **ANY_ACL).error_code == 54
        assert session.request("delete_acls", 3, filters=[ANY_ACL]).filter_results[0].error_code == 54
        creation = {
            "resource_type": 2, "resource_name": "t", "resource_pattern_type": 3, "principal": "User:a", "host": "*",
            "operation": 3, "permission_type": 3,
        }  # fmt: skip
        assert session.request("create_acls", 3, creations=[creation]).results[0].error_code == 54
        session.close()


@pytest.mark.parametrize(
    ("name", "value"),
    [("authorizer.class.name", "com.example.MyAuthorizer"), ("super.users", "anna"), ("super.users", "User:a;bob")],
)
def test_settings_that_could_not_act_are_refused(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=name):
        Settings.load(None, {name: value})


def test_the_broker_writes_its_journal_whatever_the_acls_say() -> None:
    from penstock.security.acl_model import AclBinding, Operation, PatternType, Permission, ResourceType
    from penstock.security.acls import AclSet

    rule = AclBinding(
        ResourceType.GROUP, "g", PatternType.LITERAL, "User:ANONYMOUS", "*", Operation.READ, Permission.ALLOW
    )
    settings = SETTINGS | {"allow.everyone.if.no.acl.found": "false", "super.users": "User:root"}
    with penstock.Broker(settings=settings) as running:
        broker = running._broker
        broker.loop.call_soon_threadsafe(broker.authorizer.take, AclSet.of([rule]))
        guest = RoleSession(running.port, GUEST)
        guest.request("find_coordinator", 4, key_type=0, coordinator_keys=["g"])
        join = {"group_id": "g", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000,
                "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}]}  # fmt: skip
        member = guest.request("join_group", 5, **join).member_id
        joined = guest.request("join_group", 5, **join, member_id=member)
        assert joined.error_code == 0
        assignment = [{"member_id": member, "assignment": b""}]
        guest.request("sync_group", 3, group_id="g", generation_id=1, member_id=member, assignments=assignment)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            replica = broker.replicas.find("__penstock_rebalances", 0)
            if replica is not None and replica.log.log_end_offset > 0:
                break
            time.sleep(0.05)
        else:
            pytest.fail("nothing was journalled")
        guest.close()
