"""Secrets are written as references, `${env:NAME}` or `${file:PATH}`, and looked up at the last moment.

What is stored, shown, compared or fingerprinted always holds the reference.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_REFERENCE = re.compile(r"\$\{(\w+):([^}]*)\}")
_SECRET_NAME = re.compile(
    r"(^|[._-])(password|passwd|secret|token|credentials?|api[_.-]?key|jaas)([._-]|$)", re.IGNORECASE
)


class SecretError(ValueError):
    """A reference that leads nowhere; the message names the reference, never a value."""


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
    elif isinstance(value, str) and path and _SECRET_NAME.search(path[-1]) and not _REFERENCE.search(value):
        yield path
