"""The decision by ACLs, without a broker: who may do what, by which rule; and how filters find rules."""

from __future__ import annotations

import pytest

from penstock.security.acl_model import (
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    all_operations_bits,
)
from penstock.security.acls import AclSet, Rules

TOPIC = ResourceType.TOPIC


def rule(
    operation: str,
    name: str = "orders",
    *,
    who: str = "User:anna",
    host: str = "*",
    deny: bool = False,
    prefixed: bool = False,
    kind: ResourceType = TOPIC,
) -> AclBinding:
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    return AclBinding(
        kind, name, pattern, who, host, Operation[operation], Permission.DENY if deny else Permission.ALLOW
    )


def may(rules: list[AclBinding], operation: str, name: str = "orders", who: str = "User:anna", **more: object) -> bool:
    host = str(more.pop("host", "10.0.0.1"))
    wanted = Rules(AclSet.of(rules), **more)  # type: ignore[arg-type]
    return wanted.decide(who, host, Operation[operation], TOPIC, name).allowed


def test_nothing_is_allowed_that_no_rule_allows() -> None:
    assert not may([], "READ")
    assert not may([rule("READ")], "WRITE")
    assert not may([rule("READ")], "READ", who="User:bob")
    assert not may([rule("READ")], "READ", name="orders2")
    assert may([rule("READ")], "READ")


@pytest.mark.parametrize("operation", ["READ", "WRITE", "DELETE", "ALTER", "ALL", "DESCRIBE"])
def test_whoever_may_use_a_resource_may_see_it(operation: str) -> None:
    assert may([rule(operation)], "DESCRIBE")


def test_altering_configs_brings_seeing_them_and_nothing_else_does() -> None:
    assert may([rule("ALTER_CONFIGS")], "DESCRIBE_CONFIGS")
    assert not may([rule("DESCRIBE")], "DESCRIBE_CONFIGS")
    assert not may([rule("CREATE")], "DESCRIBE")
    assert not may([rule("ALTER_CONFIGS")], "DESCRIBE")


def test_deny_goes_before_allow_and_denying_to_see_is_not_implied() -> None:
    assert not may([rule("ALL"), rule("READ", deny=True)], "READ")
    assert may([rule("ALL"), rule("READ", deny=True)], "WRITE")
    assert may([rule("ALL"), rule("READ", deny=True)], "DESCRIBE"), "a denied READ denies no DESCRIBE"
    assert not may([rule("READ"), rule("ALL", deny=True)], "DESCRIBE")
    assert not may([rule("READ"), rule("READ", "*", deny=True)], "READ")
    assert not may([rule("READ"), rule("READ", "ord", deny=True, prefixed=True)], "READ")


def test_wildcards_and_prefixes() -> None:
    assert may([rule("READ", "*")], "READ", name="anything")
    assert may([rule("READ", who="User:*")], "READ", who="User:bob")
    assert may([rule("READ", "ord", prefixed=True)], "READ")
    assert not may([rule("READ", "ord", prefixed=True)], "READ", name="or")
    assert not may([rule("READ", "*", prefixed=True)], "READ"), "a prefix is taken word for word"


def test_hosts() -> None:
    here = [rule("READ", host="10.0.0.1")]
    assert may(here, "READ")
    assert not may(here, "READ", host="10.0.0.2")
    assert not may([rule("READ"), rule("READ", host="10.0.0.1", deny=True)], "READ")


def test_super_users_and_resources_without_rules() -> None:
    denied = [rule("ALL", deny=True)]
    assert may(denied, "READ", super_users=frozenset({"User:anna"}))
    assert may([], "READ", allow_everyone_if_no_acl_found=True)
    assert not may([rule("READ", who="User:bob")], "READ", allow_everyone_if_no_acl_found=True)


def test_a_decision_says_by_which_rule() -> None:
    allowed, forbidden = rule("READ", "ord", prefixed=True), rule("READ", host="10.0.0.9", deny=True)
    rules = Rules(AclSet.of([allowed, forbidden]))
    assert rules.decide("User:anna", "10.0.0.1", Operation.READ, TOPIC, "orders").by == allowed
    assert rules.decide("User:anna", "10.0.0.9", Operation.READ, TOPIC, "orders").by == forbidden
    assert rules.decide("User:bob", "10.0.0.9", Operation.READ, TOPIC, "orders").reason == "no rule"
    assert str(allowed) == "User:anna may Read Topic:ord*"


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([], False),
        ([rule("WRITE")], True),
        ([rule("READ")], False),
        ([rule("WRITE"), rule("WRITE", deny=True)], False),
        ([rule("WRITE"), rule("WRITE", "other", deny=True)], True),
        ([rule("WRITE"), rule("WRITE", "*", deny=True)], False),
        ([rule("WRITE"), rule("WRITE", "ord", deny=True, prefixed=True)], False),
        ([rule("WRITE", "orders", prefixed=True), rule("WRITE", "ord", deny=True, prefixed=True)], False),
        ([rule("WRITE", "o", prefixed=True), rule("WRITE", "ord", deny=True, prefixed=True)], True),
        ([rule("WRITE", "*"), rule("WRITE", deny=True)], True),
    ],
)
def test_whether_there_is_any_topic_to_write_to(rules: list[AclBinding], expected: bool) -> None:
    found = Rules(AclSet.of(rules)).decide_for_any("User:anna", "10.0.0.1", Operation.WRITE, TOPIC)
    assert found is expected


def test_filters_find_by_each_part() -> None:
    literal, wide, prefix = rule("READ"), rule("WRITE", "*"), rule("READ", "ord", prefixed=True, deny=True)
    acls = AclSet.of([literal, wide, prefix])

    def found(**parts: object) -> set[AclBinding]:
        return set(acls.matching(AclFilter(**parts)))  # type: ignore[arg-type]

    assert found() == {literal, wide, prefix}
    assert found(name="orders") == {literal}
    assert found(name="orders", pattern_type=PatternType.MATCH) == {literal, wide, prefix}
    assert found(name="ord", pattern_type=PatternType.PREFIXED) == {prefix}
    assert found(name="ord", pattern_type=PatternType.LITERAL) == set()
    assert found(pattern_type=PatternType.LITERAL) == {literal, wide}
    assert found(operation=Operation.WRITE) == {wide}
    assert found(permission=Permission.DENY) == {prefix}
    assert found(principal="User:bob") == set()
    assert found(resource_type=ResourceType.GROUP) == set()


def test_bits_of_all_operations_are_kafkas() -> None:
    assert all_operations_bits(TOPIC) == 3576
    assert all_operations_bits(ResourceType.CLUSTER) == 8096
