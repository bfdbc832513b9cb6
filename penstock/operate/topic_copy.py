"""A topic for copied records: made like the source where it is missing, and whether records keep their partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.operate import admin
from penstock.operate.errors import usage_error
from penstock.operate.topics import create_topics
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.operate.session import Session

SET_ON_THE_TOPIC = 1  # config_source of what the topic itself has set


def refuse_onto_itself(session: Session, source: str, other: Session, target: str) -> None:
    if source == target and admin.cluster(session).cluster_id == admin.cluster(other).cluster_id:
        raise usage_error(
            f"{source} would be copied onto itself", "name another topic, or another cluster with --to or --to-profile"
        )


def make_like(session: Session, source: str, other: Session, target: str) -> int:
    """The number of partitions of the target, which gets the source's partitions and settings if it is new."""
    there = admin.cluster(other).topics.get(target)
    if there is not None:
        return len(there.partitions)
    own = [
        config
        for config in admin.describe_configs(session, admin.TOPIC_RESOURCE, source)
        if config.config_source == SET_ON_THE_TOPIC
    ]
    wanted = len(admin.topic(session, source).partitions)
    make(other, target, wanted, {config.name: config.value for config in own if config.value is not None})
    return wanted


def make(session: Session, name: str, partitions: int, configs: dict[str, str] | None = None) -> None:
    for row in create_topics(session, [name], partitions, -1, configs):
        if row.error_code not in (0, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise admin.refuse(row.error_code, row.name, row.error_message)
