"""The decision itself, pure: a set of ACLs, and whether somebody may do something by it, and by which rule.

Deny goes before allow, whatever the order; what no rule speaks about is refused, unless everybody may use resources
without rules. Kafka's AclAuthorizer and StandardAuthorizer decide the same.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from penstock.security.acl_model import (
    ALLOWED_BY,
    DENIED_BY,
    WILDCARD,
    AclBinding,
    AclFilter,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
)

__all__ = ["AclSet", "Decision", "Rules"]


@dataclass(frozen=True, slots=True)
class Decision:
    allowed: bool
    reason: str
    """`super user`, `allowed`, `denied`, `no rule`, `nothing is said about it`"""
    by: AclBinding | None = None


class AclSet:
    """Bindings by the pattern they stand under. Immutable: a change makes a new one."""

    def __init__(self, by_pattern: Mapping[Pattern, tuple[AclBinding, ...]] | None = None) -> None:
        self._by_pattern = dict(by_pattern or {})
        lengths: dict[ResourceType, set[int]] = {}
        for kind, pattern_type, name in self._by_pattern:
            if pattern_type == PatternType.PREFIXED:
                lengths.setdefault(kind, set()).add(len(name))
        # Looking up each length of prefix that exists costs less than comparing with each prefix.
        self._prefix_lengths = {kind: sorted(found) for kind, found in lengths.items()}

    @classmethod
    def of(cls, bindings: Iterable[AclBinding]) -> AclSet:
        grouped: dict[Pattern, dict[AclBinding, None]] = {}
        for binding in bindings:
            grouped.setdefault(binding.pattern, {})[binding] = None
        return cls({pattern: tuple(found) for pattern, found in grouped.items()})

    def replacing(self, pattern: Pattern, bindings: Iterable[AclBinding]) -> AclSet:
        """The same with other bindings under this pattern."""
        changed = dict(self._by_pattern)
        changed[pattern] = tuple(bindings)
        if not changed[pattern]:
            del changed[pattern]
        return AclSet(changed)

    def under(self, pattern: Pattern) -> tuple[AclBinding, ...]:
        return self._by_pattern.get(pattern, ())

    def of_resource(self, kind: ResourceType, name: str) -> Iterator[AclBinding]:
        """Every rule whose pattern covers this resource."""
        found = self._by_pattern
        yield from found.get((kind, PatternType.LITERAL, name), ())
        if name != WILDCARD:
            yield from found.get((kind, PatternType.LITERAL, WILDCARD), ())
        lengths = self._prefix_lengths.get(kind, ())
        for length in lengths[: bisect_right(lengths, len(name))]:
            yield from found.get((kind, PatternType.PREFIXED, name[:length]), ())

    def matching(self, wanted: AclFilter) -> list[AclBinding]:
        return [binding for binding in self if wanted.matches(binding)]

    def __iter__(self) -> Iterator[AclBinding]:
        for bindings in self._by_pattern.values():
            yield from bindings

    def __len__(self) -> int:
        return sum(map(len, self._by_pattern.values()))


_UNNAMED = "hardcode"


@dataclass(frozen=True, slots=True)
class Rules:
    """All that a decision depends on."""

    acls: AclSet
    super_users: frozenset[str] = frozenset()
    allow_everyone_if_no_acl_found: bool = False

    def decide(self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str) -> Decision:
        if principal in self.super_users:
            return Decision(True, "super user")
        allowing: AclBinding | None = None
        any_rule = False
        denied_by, allowed_by = DENIED_BY[operation], ALLOWED_BY[operation]
        for binding in self.acls.of_resource(kind, name):
            any_rule = True
            if not binding.matches_caller(principal, host):
                continue
            if binding.permission == Permission.DENY:
                if binding.operation in denied_by:
                    return Decision(False, "denied", binding)
            elif allowing is None and binding.operation in allowed_by:
                allowing = binding
        if allowing is not None:
            return Decision(True, "allowed", allowing)
        if not any_rule and self.allow_everyone_if_no_acl_found:
            return Decision(True, "nothing is said about it")
        return Decision(False, "no rule")

    def decide_for_any(self, principal: str, host: str, operation: Operation, kind: ResourceType) -> bool:
        """Whether there is at least one resource of this type for which it is allowed (KIP-679)."""
        # As Kafka's: whoever may use a resource that no rule names particularly (super users, rules for all, or none
        # at all where that is enough) may use some.
        if self.decide(principal, host, operation, kind, _UNNAMED).allowed:
            return True
        concerned = [
            binding
            for binding in self.acls
            if binding.resource_type == kind
            and binding.operation in DENIED_BY[operation]
            and binding.matches_caller(principal, host)
        ]
        denied = [b for b in concerned if b.permission == Permission.DENY]
        denied_names = {b.name for b in denied if b.pattern_type == PatternType.LITERAL}
        if WILDCARD in denied_names:
            return False
        denied_prefixes = tuple(b.name for b in denied if b.pattern_type == PatternType.PREFIXED)
        for binding in concerned:
            if binding.permission != Permission.ALLOW:
                continue
            literal = binding.pattern_type == PatternType.LITERAL
            if literal and binding.name == WILDCARD:
                return True
            if not binding.name.startswith(denied_prefixes) and not (literal and binding.name in denied_names):
                return True
        return False
