"""Which topic names are allowed, and which two cannot exist side by side."""

from __future__ import annotations

from collections.abc import Iterable

MAX_NAME_LENGTH = 249
_LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


def name_problem(name: str) -> str | None:
    """Why no topic can have this name, or None."""
    if not name:
        return "A topic's name must not be empty."
    if name in (".", ".."):
        return f"A topic cannot be named '{name}'."
    if len(name) > MAX_NAME_LENGTH:
        return f"A topic's name has at most {MAX_NAME_LENGTH} characters, this one {len(name)}."
    if not _LEGAL.issuperset(name):
        return f"Topic name '{name}' has characters other than ASCII letters, digits, '.', '_' and '-'."
    return None


def collision(name: str, existing: Iterable[str]) -> str | None:
    """A topic whose name differs only in '.' and '_': their metrics would have one name."""
    if "." not in name and "_" not in name:
        return None
    flat = name.replace(".", "_")
    for other in existing:
        if other != name and len(other) == len(name) and other.replace(".", "_") == flat:
            return other
    return None
