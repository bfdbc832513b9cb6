"""What the administrative APIs share: the rooms that do the work, and the wait until this broker shows the result."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, TypeVar

from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.cluster.configs import ConfigAdmin
    from penstock.cluster.topics import TopicAdmin

T = TypeVar("T")
SHOW_RESULT_SECONDS = 10.0


def topic_admin(broker: Broker) -> TopicAdmin:
    from penstock.cluster.topics import TopicAdmin

    return TopicAdmin(broker.store, broker.image_holder, broker.settings)


def config_admin(broker: Broker) -> ConfigAdmin:
    return broker.member.configs


def split_duplicates(items: Iterable[T], key: Callable[[T], Hashable]) -> tuple[list[T], list[T]]:
    """(those that appear once, the first of each that appears more often)."""
    grouped: dict[Hashable, list[T]] = {}
    for item in items:
        grouped.setdefault(key(item), []).append(item)
    single = [group[0] for group in grouped.values() if len(group) == 1]
    repeated = [group[0] for group in grouped.values() if len(group) > 1]
    return single, repeated


def explained(code: int, message: str | None = None) -> str | None:
    """An error's own sentence unless there is a better one; nothing for success."""
    if code == ErrorCode.NONE:
        return None
    return message or ErrorCode(code).message


async def show_controller_state(broker: Broker) -> None:
    """Wait until this broker has applied what its own controller decided last."""
    if not broker.controller.is_active:
        return
    decided = broker.controller.state.image
    epoch, version = decided.controller_epoch, decided.version
    await broker.image_holder.wait_until(lambda image: not image.is_behind(epoch, version), SHOW_RESULT_SECONDS)
