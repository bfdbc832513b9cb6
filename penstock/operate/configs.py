"""Settings of topics, brokers and groups: values, where each comes from, what it means; changes checked by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.operate import admin
from penstock.operate.errors import not_found

if TYPE_CHECKING:
    from penstock.operate.session import Session

DEFAULT = 5
SOURCES = {
    1: "topic",
    2: "broker",
    3: "all brokers",
    4: "file",
    5: "default",
    6: "logger",
    8: "group",
}


def describe(session: Session, kind: int, name: str) -> list[Any]:
    node = int(name) if kind == admin.BROKER_RESOURCE and name else None
    return admin.describe_configs(session, kind, name, node)


def config_row(config: Any) -> dict[str, Any]:
    return {
        "key": config.name,
        "value": None if config.is_sensitive else config.value,
        "source": SOURCES.get(config.config_source, str(config.config_source)),
        "read_only": config.read_only,
        "sensitive": config.is_sensitive,
        "doc": config.documentation,
    }


def check_names(session: Session, kind: int, name: str, keys: list[str]) -> None:
    """A mistyped key is told with the nearest ones, before anything is changed."""
    node = name
    if kind == admin.BROKER_RESOURCE and not name:
        node = str(min(admin.live_brokers(session)))
    known = {c.name for c in describe(session, kind, node)}
    for key in keys:
        if known and key not in known:
            raise not_found("setting", key, known)
