"""What one row of the settings table is: name, type, default, check, sentence, and where it may be changed."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import IntEnum
from typing import Any

__all__ = [
    "BOOLEAN",
    "CLASS",
    "DOUBLE",
    "INT",
    "LIST",
    "LONG",
    "PASSWORD",
    "SHORT",
    "STRING",
    "Check",
    "Effect",
    "Problem",
    "Scope",
    "Setting",
    "SettingsError",
    "Source",
    "at_least",
    "between",
    "gzip_level",
    "non_empty",
    "one_of",
    "subset_of",
    "throttled_replicas",
    "without_end_or_at_least",
]

# Type codes as DescribeConfigs carries them.
BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, CLASS, PASSWORD = range(1, 10)
TYPE_NAMES = ("UNKNOWN", "BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD")
_INTEGER_BITS = {INT: 31, SHORT: 15, LONG: 63}


class Source(IntEnum):
    """Where a value comes from, as DescribeConfigs says it."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


class Scope(IntEnum):
    """Who may change it while brokers run."""

    READ_ONLY = 0
    PER_BROKER = 1
    CLUSTER_WIDE = 2
    TOPIC = 3


class Effect(IntEnum):
    """Whether setting it changes what Penstock does."""

    YES = 0
    ACCEPTED = 1  # known and checked; there is nothing here that it could steer
    NOT_APPLICABLE = 2  # belongs to parts of Kafka that Penstock replaces
    REFUSED = 3  # security that is not there: whoever counts on it is told at once


class Problem:
    """One value that cannot be used; its text names the setting, the value and what is allowed."""

    __slots__ = ("message", "name", "value")

    def __init__(self, name: str, value: Any, message: str) -> None:
        self.name, self.value, self.message = name, value, message

    def __str__(self) -> str:
        return self.message

    def __repr__(self) -> str:
        return f"Problem({self.name!r}, {self.value!r}, {self.message!r})"


class SettingsError(Exception):
    """All problems of a configuration at once."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        super().__init__("\n".join(problem.message for problem in problems))


class Check:
    """A condition on typed values: `complaint(value)` is None or the sentence that says what is allowed."""

    __slots__ = ("_complaint", "allowed")

    def __init__(self, allowed: str, complaint: Callable[[Any], str | None]) -> None:
        self.allowed = allowed
        self._complaint = complaint

    def complaint(self, value: Any) -> str | None:
        return self._complaint(value)


def at_least(low: float) -> Check:
    return Check(f"≥ {low}", lambda value: None if value >= low else f"Value must be at least {low}")


def between(low: float, high: float) -> Check:
    def complaint(value: Any) -> str | None:
        if value < low:
            return f"Value must be at least {low}"
        return f"Value must be no more than {high}" if value > high else None

    return Check(f"{low} to {high}", complaint)


def one_of(*choices: str, any_case: bool = False) -> Check:
    known = {choice.lower() for choice in choices} if any_case else set(choices)

    def complaint(value: Any) -> str | None:
        found = (value.lower() if any_case else value) in known
        return None if found else f"String must be one of: {', '.join(choices)}"

    return Check(", ".join(choices), complaint)


def subset_of(*choices: str) -> Check:
    def complaint(value: Any) -> str | None:
        return None if set(value) <= set(choices) else f"String must be one of: {', '.join(choices)}"

    return Check("list of " + ", ".join(choices), complaint)


def non_empty() -> Check:
    return Check("not empty", lambda value: None if value else "it must not be empty")


def gzip_level() -> Check:
    def complaint(value: Any) -> str | None:
        return None if value == -1 or 1 <= value <= 9 else "Value must be between 1 and 9 or equal to -1"

    return Check("1 to 9, or -1", complaint)


def without_end_or_at_least(low: int) -> Check:
    def complaint(value: Any) -> str | None:
        return None if value == -1 or value >= low else f"it must be -1 (without end) or at least {low}"

    return Check(f"-1, or ≥ {low}", complaint)


def throttled_replicas() -> Check:
    """`*` for all replicas, or pairs partition:broker."""

    def complaint(value: Any) -> str | None:
        if value == ("*",) or all(re.fullmatch(r"\d+:\d+", pair) for pair in value):
            return None
        return "it must be '*' or a list of partition:broker pairs, separated by commas"

    return Check("* or partition:broker, …", complaint)


def connection_counts() -> Check:
    """Pairs address:count."""

    def complaint(value: Any) -> str | None:
        for pair in value.split(",") if value.strip() else ():
            host, _, count = pair.strip().rpartition(":")
            if not host or not re.fullmatch(r"[0-9]{1,9}", count):
                return f"{pair.strip()!r} is no pair of an address and a number, address:count"
        return None

    return Check("address:count, …", complaint)


class Setting:
    """One row of the table."""

    __slots__ = ("check", "default", "doc", "effect", "name", "scope", "synonyms", "type")

    def __init__(
        self,
        name: str,
        type_code: int,
        default: Any,
        check: Check | None,
        scope: Scope,
        doc: str,
        effect: Effect = Effect.YES,
        synonyms: tuple[tuple[str, int], ...] = (),
    ) -> None:
        self.name, self.type, self.default, self.check = name, type_code, default, check
        self.scope, self.doc, self.effect = scope, doc, effect
        self.synonyms = synonyms  # broker settings that give a topic's default, first that is set wins: (name, factor)

    @property
    def sensitive(self) -> bool:
        return self.type == PASSWORD

    @property
    def type_name(self) -> str:
        return TYPE_NAMES[self.type]

    @property
    def allowed(self) -> str:
        """What is allowed, for people."""
        if self.check is not None:
            return self.check.allowed
        return "true, false" if self.type == BOOLEAN else ""

    def parse(self, text: str | None) -> Any:
        """The typed value of a text; raises `SettingsError` that names what is wrong."""
        if text is None:
            return None
        value = self._typed(text)
        complaint = self.check.complaint(value) if self.check is not None and value is not None else None
        if complaint:
            self.refuse(text.strip(), complaint)
        if self.effect == Effect.REFUSED and value != self.default:
            self.refuse(text.strip(), f"it would have no effect. {self.doc}")
        return value

    def refuse(self, value: Any, why: str) -> None:
        shown = "[hidden]" if self.sensitive else value
        raise SettingsError([Problem(self.name, shown, f"Invalid value {shown} for configuration {self.name}: {why}")])

    def _typed(self, text: str) -> Any:
        stripped = text.strip()
        if self.type == BOOLEAN:
            if stripped.lower() not in ("true", "false"):
                self.refuse(stripped, "Expected value to be either true or false")
            return stripped.lower() == "true"
        if self.type in _INTEGER_BITS:
            limit = 1 << _INTEGER_BITS[self.type]
            if not re.fullmatch(r"[+-]?[0-9]+", stripped) or not -limit <= int(stripped) < limit:
                self.refuse(stripped, f"Not a number of type {self.type_name}")
            return int(stripped)
        if self.type == DOUBLE:
            try:
                return float(stripped)
            except ValueError:
                self.refuse(stripped, f"Not a number of type {self.type_name}")
        if self.type == LIST:
            return tuple(part for part in (p.strip() for p in stripped.split(",")) if part)
        return stripped

    def render(self, value: Any) -> str | None:
        """The text of a typed value, as Kafka's tools print it."""
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        if isinstance(value, float):
            return repr(value).replace("e+", "E")
        return str(value)
