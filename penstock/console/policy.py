"""Which topics a role sees, and which fields it sees masked: from a TOML file, held on every way out.

    [[visible]]
    roles = ["viewer"]
    topics = ["orders*", "public.*"]

    [[mask]]
    topics = ["payments*"]
    fields = ["value.card.number", "headers.authorization", "key"]
    except_roles = ["admin"]

A role without a `visible` rule sees every topic. Whatever stands where a field is looked for, and is no JSON object to
look into, is masked whole. Names of headers count in any case.
"""

from __future__ import annotations

import fnmatch
import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.console.access.users import ROLES
from penstock.operate.errors import usage_error
from penstock.protocol.records import Record

MASK = "•••"


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
class Policy:
    visible: tuple[Visible, ...] = ()
    masks: tuple[Mask, ...] = ()

    def sees(self, role: str, topic: str) -> bool:
        rules = [rule for rule in self.visible if role in rule.roles]
        return not rules or any(_matches(topic, rule.topics) for rule in rules)

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


def masked(record: Record, fields: tuple[str, ...]) -> Record:
    """The record without what these fields hold. Whatever filters or shows a record sees only this."""
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
