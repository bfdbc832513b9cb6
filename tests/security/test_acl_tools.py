"""Programs that others wrote: Kafka's kafka-acls and kafka-configs (quotas), unmodified, and librdkafka's ACL calls."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

import penstock
from penstock.testing import peers
from penstock.testing.probes.access import SETTINGS


@pytest.fixture(scope="module")
def broker() -> Iterator[penstock.Broker]:
    with penstock.Broker(settings=SETTINGS | {"super.users": "User:ANONYMOUS", "broker.id": "1"}) as running:
        yield running


def tool(main_class: str, broker: penstock.Broker, *arguments: str) -> str:
    done = peers.kafka_tool(main_class, "--bootstrap-server", broker.bootstrap, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.java
def test_kafka_acls_adds_lists_and_removes(broker: penstock.Broker) -> None:
    acls = "AclCommand"
    allow = ("--allow-principal", "User:anna", "--consumer", "--topic", "orders", "--group", "shop")
    deny = ("--deny-principal", "User:bob", "--deny-host", "10.0.0.1", "--operation", "Write")
    with ThreadPoolExecutor(2) as both:
        added = [
            both.submit(tool, acls, broker, "--add", *allow),
            both.submit(tool, acls, broker, "--add", *deny, "--topic", "pay", "--resource-pattern-type", "prefixed"),
        ]
        assert all(one.result() for one in added)
        everything = both.submit(tool, acls, broker, "--list")
        of_payments = both.submit(
            tool, acls, broker, "--list", "--topic", "payments", "--resource-pattern-type", "match"
        )
    listed = everything.result()
    assert "ResourcePattern(resourceType=TOPIC, name=orders, patternType=LITERAL)" in listed
    assert "(principal=User:anna, host=*, operation=READ, permissionType=ALLOW)" in listed
    assert "ResourcePattern(resourceType=GROUP, name=shop, patternType=LITERAL)" in listed
    assert "(principal=User:bob, host=10.0.0.1, operation=WRITE, permissionType=DENY)" in of_payments.result()
    assert "orders" not in of_payments.result()
    tool(acls, broker, "--remove", "--force", "--topic", "orders")
    assert "orders" not in tool(acls, broker, "--list")


@pytest.mark.java
def test_kafka_configs_sets_shows_and_deletes_quotas(broker: penstock.Broker) -> None:
    configs = "kafka.admin.ConfigCommand"
    user = ("--entity-type", "users", "--entity-name", "anna", "--entity-type", "clients", "--entity-default")
    address = ("--entity-type", "ips", "--entity-name", "10.1.2.3")

    def both(*calls: tuple[str, ...]) -> list[str]:
        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(lambda arguments: tool(configs, broker, *arguments), calls))

    both(
        ("--alter", "--add-config", "producer_byte_rate=1024,request_percentage=50", *user),
        ("--alter", "--add-config", "connection_creation_rate=7", *address),
    )
    shown = tool(configs, broker, "--describe", *user)
    assert "user-principal 'anna'" in shown and "producer_byte_rate=1024.0" in shown and "50.0" in shown
    limits = broker._broker.quotas.limits
    assert limits.of_address("10.1.2.3") == 7
    tool(configs, broker, "--alter", "--delete-config", "producer_byte_rate,request_percentage", *user)
    assert not broker._broker.quotas.limits.for_clients


def test_librdkafka_creates_describes_and_deletes_acls(broker: penstock.Broker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    rule = AclBinding(
        ResourceType.TOPIC,
        "from-librdkafka",
        ResourcePatternType.PREFIXED,
        "User:carl",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    (created,) = admin.create_acls([rule]).values()
    created.result(10)
    wanted = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, "User:carl", None, AclOperation.ANY, AclPermissionType.ANY
    )
    assert admin.describe_acls(wanted).result(10) == [rule]
    (deleted,) = admin.delete_acls([wanted]).values()
    assert deleted.result(10) == [rule]
    assert admin.describe_acls(wanted).result(10) == []
