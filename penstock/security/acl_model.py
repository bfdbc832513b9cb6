"""The words of ACLs: resource types, patterns, operations, bindings and the filters that find them. Numbers as on the
wire, names as in the store and in Kafka's tools."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

__all__ = [
    "ALLOWED_BY",
    "CLUSTER_NAME",
    "DENIED_BY",
    "STORED_TYPES",
    "WILDCARD",
    "WILDCARD_PRINCIPAL",
    "AclBinding",
    "AclFilter",
    "Operation",
    "Pattern",
    "PatternType",
    "Permission",
    "ResourceType",
    "all_operations_bits",
    "supported_operations",
]

WILDCARD = "*"
WILDCARD_PRINCIPAL = "User:*"
CLUSTER_NAME = "kafka-cluster"


class _Named(IntEnum):
    @property
    def title(self) -> str:
        """`TRANSACTIONAL_ID` → `TransactionalId`, as the store spells it."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @classmethod
    def parse(cls, text: str) -> _Named:
        """Any of Kafka's spellings: `TransactionalId`, `transactional-id`, `TRANSACTIONAL_ID`. Raises ValueError."""
        wanted = text.replace("_", "").replace("-", "").lower()
        for member in cls:
            if member.name.replace("_", "").lower() == wanted:
                return member
        raise ValueError(f"{text!r} is none of {', '.join(member.title for member in cls if member > 1)}")


class ResourceType(_Named):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Named):
    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(_Named):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(_Named):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


STORED_TYPES = tuple(kind for kind in ResourceType if kind > ResourceType.ANY)

# What an allowed operation brings along: who may write may also see.
ALLOWED_BY: dict[Operation, frozenset[Operation]] = {
    operation: frozenset({operation, Operation.ALL}) for operation in Operation
} | {
    Operation.DESCRIBE: frozenset(
        {Operation.DESCRIBE, Operation.ALL, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALL, Operation.ALTER_CONFIGS}),
}
DENIED_BY: dict[Operation, frozenset[Operation]] = {
    operation: frozenset({operation, Operation.ALL}) for operation in Operation
}

_SUPPORTED: dict[ResourceType, tuple[Operation, ...]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE, Operation.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}


def supported_operations(kind: ResourceType) -> tuple[Operation, ...]:
    """The operations that mean something for this type of resource."""
    return _SUPPORTED.get(kind, ())


def all_operations_bits(kind: ResourceType) -> int:
    """What DescribeTopics and its kind show to somebody who may do everything."""
    return sum(1 << operation for operation in supported_operations(kind))


Pattern = tuple[ResourceType, PatternType, str]
"""Which resources a rule is about: the node that it stands in."""


@dataclass(frozen=True, slots=True)
class AclBinding:
    """One rule: who may, or may not, do what, from where, with which resources."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: Operation
    permission: Permission

    @property
    def pattern(self) -> Pattern:
        return self.resource_type, self.pattern_type, self.name

    def matches_resource(self, kind: ResourceType, name: str) -> bool:
        if self.resource_type != kind:
            return False
        if self.pattern_type == PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, WILDCARD)

    def matches_caller(self, principal: str, host: str) -> bool:
        return self.principal in (principal, WILDCARD_PRINCIPAL) and self.host in (host, WILDCARD)

    def __str__(self) -> str:
        verb = "may" if self.permission == Permission.ALLOW else "must not"
        pattern = f"{self.name}*" if self.pattern_type == PatternType.PREFIXED else self.name
        place = "" if self.host == WILDCARD else f" from {self.host}"
        return f"{self.principal} {verb} {self.operation.title} {self.resource_type.title}:{pattern}{place}"


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Which bindings are meant; None and ANY leave a part open."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def matches(self, binding: AclBinding) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, binding.resource_type)
            and self._matches_pattern(binding)
            and self.principal in (None, binding.principal)
            and self.host in (None, binding.host)
            and self.operation in (Operation.ANY, binding.operation)
            and self.permission in (Permission.ANY, binding.permission)
        )

    def _matches_pattern(self, binding: AclBinding) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, binding.pattern_type):
            return False
        if self.name is None:
            return True
        if self.pattern_type == PatternType.MATCH:
            return binding.matches_resource(binding.resource_type, self.name)
        return binding.name == self.name
