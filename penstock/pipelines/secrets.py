"""Secrets are written as references, `${env:NAME}` or `${file:PATH}`, and looked up at the last moment.

What is stored, shown, compared or fingerprinted always holds the reference. A runner runs what others have applied: it
looks up only what it was told to (`allow`). What was looked up is remembered, so that `redacted` takes it out of texts.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_REFERENCE = re.compile(r"\$\{(\w+):([^}]*)\}")
_SECRET_NAME = re.compile(
    r"(^|[._-])(password|passwd|secret|token|credentials?|api[_.-]?key|jaas)([._-]|$)", re.IGNORECASE
)


# A password inside a connection string: postgresql://user:password@host, or password=… among pairs.
_INSIDE = re.compile(r"://[^/\s:@]*:[^@\s/$]+@|(?:^|[\s;&?])(?:password|pwd)\s*=\s*[^\s$;&]", re.IGNORECASE)
_HIDDEN = "(secret)"
_SHORTEST = 4  # shorter ones would take half of every text with them
_SHORTEST_LINE = 8  # of one that has many: a brace or a word of it is no secret


class SecretError(ValueError):
    """A reference that leads nowhere; the message names the reference, never a value."""


@dataclass(frozen=True)
class Allowed:
    """Which references may be looked up: variables by how their names begin, files by the folder they are in."""

    env_prefix: str = ""
    folder: str | None = ""  # "": any, None: none

    def insist(self, kind: str, name: str, reference: str) -> None:
        if kind == "env" and not name.startswith(self.env_prefix):
            raise SecretError(
                f"{reference}: this runner looks up variables named {self.env_prefix}… only (--env-prefix)"
            )
        if kind == "file" and self.folder != "":
            inside = self.folder is not None and Path(name).resolve().is_relative_to(Path(self.folder).resolve())
            if not inside:
                raise SecretError(
                    f"{reference}: this runner looks up files in {self.folder or 'no folder'} only (--secrets-dir)"
                )


OF_RUNNERS = Allowed(env_prefix="PENSTOCK_", folder=None)  # unless told otherwise
_allowed = Allowed()
_looked_up: set[str] = set()


def allow(allowed: Allowed) -> None:
    """From now on in this process."""
    global _allowed
    _allowed = allowed


def redacted(text: str) -> str:
    """A text without the secrets that this process has looked up."""
    for secret in sorted(_looked_up, key=len, reverse=True):
        # Texts quote in their own ways: JSON escapes, addresses count in percent.
        for form in {secret, json.dumps(secret)[1:-1], urllib.parse.quote(secret, safe="")}:
            text = text.replace(form, _HIDDEN)
    return text


def remember(value: Any) -> None:
    """Look up all that is allowed and there, for `redacted` alone: another process does the work, this one its log."""
    if isinstance(value, str):
        for found in _REFERENCE.finditer(value):
            with contextlib.suppress(SecretError):
                _lookup(found, os.environ)
    elif isinstance(value, Mapping):
        for item in value.values():
            remember(item)
    elif isinstance(value, list | tuple):
        for item in value:
            remember(item)


def has_reference(text: str) -> bool:
    return _REFERENCE.search(text) is not None


def references(text: str) -> list[str]:
    """What a text refers to: `env:NAME`, `file:PATH`."""
    return [f"{found[1]}:{found[2].strip()}" for found in _REFERENCE.finditer(text)]


def resolve(value: Any, environment: Mapping[str, str] | None = None) -> Any:
    """The same data with every reference replaced by what it stands for."""
    if isinstance(value, str):
        return _REFERENCE.sub(lambda found: _lookup(found, os.environ if environment is None else environment), value)
    if isinstance(value, Mapping):
        return {key: resolve(item, environment) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(resolve(item, environment) for item in value)
    return value


def _lookup(found: re.Match[str], environment: Mapping[str, str]) -> str:
    _allowed.insist(found.group(1), found.group(2).strip(), found.group(0))
    secret = _value(found, environment)
    # Logs come line by line: of a key of many lines each one tells a part.
    lines = [line.strip() for line in secret.splitlines()]
    _looked_up.update(line for line in lines if len(line) >= _SHORTEST_LINE)
    if len(secret) >= _SHORTEST:
        _looked_up.add(secret)
    return secret


def _value(found: re.Match[str], environment: Mapping[str, str]) -> str:
    kind, name = found.group(1), found.group(2).strip()
    if kind == "env":
        if name not in environment:
            raise SecretError(f"{found.group(0)}: the environment variable {name} is not set")
        return environment[name]
    if kind == "file":
        try:
            return Path(name).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise SecretError(f"{found.group(0)}: {error.strerror}") from None
    raise SecretError(f"{found.group(0)}: a reference is ${{env:NAME}} or ${{file:PATH}}")


def plain_secrets(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Where something that is named like a secret stands in plain text."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from plain_secrets(item, (*path, str(key)))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from plain_secrets(item, (*path, str(index)))
    elif isinstance(value, str) and path and _is_plain(value, path):
        yield path


def _is_plain(value: str, path: tuple[str, ...]) -> bool:
    if _SECRET_NAME.search(path[-1]) and not _REFERENCE.search(value):
        return True
    return path[0] in ("sources", "sinks", "settings") and _INSIDE.search(value) is not None
