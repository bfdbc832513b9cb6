"""Spark against a broker with SASL_SSL and ACLs: source and sink, with no more rights than they need."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

import penstock
from penstock.security.certificates import Authority

pytestmark = pytest.mark.spark

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required user_admin=admin-secret user_spark=spark-secret;"
)


def right(kind: Any, name: str, operation: Any) -> AclBinding:
    pattern = ResourcePatternType.PREFIXED if name.endswith(("_", "-")) else ResourcePatternType.LITERAL
    return AclBinding(kind, name, pattern, "User:spark", "*", operation, AclPermissionType.ALLOW)


def test_spark_writes_and_reads_with_the_least_rights(spark: Any, tmp_path: Path) -> None:
    authority = Authority.create()
    (tmp_path / "ca.pem").write_bytes(authority.certificate)
    (tmp_path / "server.pem").write_bytes(authority.issue("localhost", ["127.0.0.1", "localhost"]).both)
    settings = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(tmp_path / "server.pem"),
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.jaas.config": JAAS,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
    }
    with penstock.Broker(tmp_path / "data", settings=settings) as broker:
        login = {
            "bootstrap.servers": broker.bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "ssl.ca.location": str(tmp_path / "ca.pem"),
        }
        admin = AdminClient({**login, "sasl.username": "admin", "sasl.password": "admin-secret"})
        admin.create_topics([NewTopic("orders", 2, 1)])["orders"].result(30)
        rights = [
            right(ResourceType.TOPIC, "orders", AclOperation.WRITE),
            right(ResourceType.TOPIC, "orders", AclOperation.READ),
            right(ResourceType.TOPIC, "__penstock_", AclOperation.ALL),
            right(ResourceType.GROUP, "penstock-sink-", AclOperation.READ),
            right(ResourceType.TRANSACTIONAL_ID, "*", AclOperation.ALL),
        ]
        for future in admin.create_acls(rights).values():
            future.result(30)
        options = {f"kafka.{name}": value for name, value in login.items()}
        options |= {"kafka.sasl.username": "spark", "kafka.sasl.password": "spark-secret"}
        rows = spark.range(50).selectExpr("cast(id as string) as key", "cast(id as string) as value")
        rows.write.format("penstock").options(**options).option("topic", "orders").mode("append").save()
        found = spark.read.format("penstock").options(**options).option("subscribe", "orders").load()
        assert found.count() == 50
        wrong = {**options, "kafka.sasl.password": "guess"}
        with pytest.raises(Exception, match="refused"):
            spark.read.format("penstock").options(**wrong).option("subscribe", "orders").load().count()
