"""Which topics a role sees, and which fields it sees masked: from a TOML file, held on every way out.

    [[visible]]
    roles = ["viewer"]
    topics = ["orders*", "public.*"]

    [[mask]]
    topics = ["payments*"]
    fields = ["value.card.number", "headers.authorization", "key"]
    except_roles = ["admin"]

A role without a `visible` rule sees every topic. Whatever stands where a field is looked for, and is no JSON object to
look into, is masked whole. Names of headers count in any case. A dead letter is a record of the topic that it came
from: it is masked as it would be there, and whole for who does not see that topic.
"""

from __future__ import annotations

import fnmatch
import json
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from penstock.console.access.users import ROLES
from penstock.operate.errors import usage_error
from penstock.protocol.records import Record

MASK = "•••"
_ORIGIN = "penstock.dlq.topic"


@dataclass(frozen=True, slots=True)
class Visible:
    roles: tuple[str, ...]
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Mask:
    topics: tuple[str, ...]
    fields: tuple[str, ...]
    except_roles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OfLetters:
    """Fields that are masked in dead letters of these topics; with `others`, of all topics but these."""

    topics: tuple[str, ...]
    fields: tuple[str, ...]
    others: bool = False

    def applies(self, origin: str) -> bool:
        return _matches(origin, self.topics) != self.others


Fields = tuple[str | OfLetters, ...]
_WHOLE = ("key", "value", "headers")
_REASONS = ("headers.penstock.dlq.reason", "headers.penstock.dlq.stack")  # they may tell of what is masked


def masks_as_data(masks: Fields) -> list[Any]:
    """For another process, as JSON."""
    return [mask if isinstance(mask, str) else asdict(mask) for mask in masks]


def masks_from_data(data: list[Any]) -> Fields:
    return tuple(
        one if isinstance(one, str) else OfLetters(tuple(one["topics"]), tuple(one["fields"]), one["others"])
        for one in data
    )


@dataclass(frozen=True, slots=True)
class Policy:
    visible: tuple[Visible, ...] = ()
    masks: tuple[Mask, ...] = ()

    def sees(self, role: str, topic: str) -> bool:
        rules = [rule for rule in self.visible if role in rule.roles]
        return not rules or any(_matches(topic, rule.topics) for rule in rules)

    def sees_everything(self, role: str) -> bool:
        return not any(role in rule.roles for rule in self.visible)

    def masks_something(self, role: str) -> bool:
        return any(role not in mask.except_roles for mask in self.masks)

    def masks_of(self, role: str, topic: str) -> Fields:
        """What is masked in a topic's records, with what is masked in those that are letters of other topics."""
        letters = [OfLetters(m.topics, m.fields + _REASONS) for m in self.masks if role not in m.except_roles]
        shown = tuple(pattern for rule in self.visible if role in rule.roles for pattern in rule.topics)
        if not self.sees_everything(role):
            letters.append(OfLetters(shown, _WHOLE, others=True))
        return (*self.masked_fields(role, topic), *letters)

    def masked_fields(self, role: str, topic: str) -> tuple[str, ...]:
        return tuple(
            field
            for mask in self.masks
            if role not in mask.except_roles and _matches(topic, mask.topics)
            for field in mask.fields
        )


def load(path: Path | None) -> Policy:
    if path is None:
        return Policy()
    try:
        content = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise usage_error(f"the policy {path} cannot be read: {error}") from error
    unknown = set(content) - {"visible", "mask"}
    if unknown:
        raise usage_error(f"{path}: {min(unknown)!r} means nothing", "there is [[visible]] and [[mask]]")
    visible = [
        Visible(**_rule(row, path, {"roles": ROLES, "topics": None}, {"roles", "topics"}))
        for row in content.get("visible", [])
    ]
    masks = [
        Mask(**_rule(row, path, {"topics": None, "fields": None, "except_roles": ROLES}, {"topics", "fields"}))
        for row in content.get("mask", [])
    ]
    for mask in masks:
        for field in mask.fields:
            if field.partition(".")[0] not in ("key", "value", "headers"):
                raise usage_error(f"{path}: {field!r} is no field", "fields start with key, value or headers")
    return Policy(tuple(visible), tuple(masks))


def _rule(
    row: Any, path: Path, known: dict[str, tuple[str, ...] | None], needed: set[str]
) -> dict[str, tuple[str, ...]]:
    if not isinstance(row, dict) or not needed <= set(row) <= set(known):
        raise usage_error(f"{path}: a rule has {', '.join(sorted(known))}; it needs {', '.join(sorted(needed))}")
    for name, words in row.items():
        allowed = known[name]
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise usage_error(f"{path}: {name} is a list of texts")
        if allowed is not None and not set(words) <= set(allowed):
            raise usage_error(f"{path}: {name} holds {', '.join(allowed)} only")
    return {name: tuple(words) for name, words in row.items()}


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def masked(record: Record, masks: Fields) -> Record:
    """The record without what these fields hold. Whatever filters or shows a record sees only this."""
    fields = _fields(record, masks)
    if not fields:
        return record
    hidden_headers = {field.partition(".")[2].casefold() for field in fields if field.startswith("headers")}
    headers = tuple(
        (name, MASK.encode() if name.casefold() in hidden_headers or "" in hidden_headers else value)
        for name, value in record.headers
    )
    return record._replace(
        key=_masked_bytes(record.key, [f for f in fields if f.partition(".")[0] == "key"]),
        value=_masked_bytes(record.value, [f for f in fields if f.partition(".")[0] == "value"]),
        headers=headers,
    )


def _fields(record: Record, masks: Fields) -> list[str]:
    fields = [mask for mask in masks if isinstance(mask, str)]
    if len(fields) < len(masks):
        origins = [(value or b"").decode("utf-8", "replace") for name, value in record.headers if name == _ORIGIN]
        for mask in masks:
            if isinstance(mask, OfLetters) and any(mask.applies(origin) for origin in origins):
                fields += mask.fields
    return fields


def _masked_bytes(data: bytes | None, fields: list[str]) -> bytes | None:
    if data is None or not fields:
        return data
    paths = [field.split(".")[1:] for field in fields]
    if [] in paths:
        return MASK.encode()
    try:
        content = json.loads(data)
        if not isinstance(content, dict | list):
            return MASK.encode()
        for path in paths:
            content = _without(content, path)
        return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    except (ValueError, RecursionError):
        return MASK.encode()


def _without(content: Any, path: list[str]) -> Any:
    """The same with a mask where the path leads, or ends before its time; a name may itself hold dots."""
    if content is None:
        return None
    if not path or not isinstance(content, dict | list):
        return MASK
    if isinstance(content, list):
        return [_without(item, path) for item in content]
    hidden = dict(content)
    for length in range(1, len(path) + 1):
        name = ".".join(path[:length])
        if name in hidden:
            hidden[name] = _without(hidden[name], path[length:])
    return hidden
