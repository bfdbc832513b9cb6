"""Changing configs, as any broker may: check, write the resource's node with a change notification, wait for the
image."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from penstock.base.settings import BROKER_SETTINGS, TOPIC_SETTINGS, topic_problems
from penstock.base.settings.describe import broker_problems
from penstock.base.settings.model import LIST
from penstock.cluster import znodes
from penstock.cluster.image import ConfigKey, MetadataImage
from penstock.cluster.image_holder import ImageHolder
from penstock.cluster.topics import Refusal
from penstock.protocol.errors import ErrorCode
from penstock.store.interface import (
    BadVersion,
    Create,
    MultiFailed,
    NodeExists,
    NoNode,
    Operation,
    SetData,
    TreeStore,
)

WAIT_FOR_IMAGE_SECONDS = 10.0
MAX_RACES = 20


class AlterKind(enum.IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class Alteration:
    name: str
    kind: AlterKind
    value: str | None


class ConfigAdmin:
    def __init__(self, store: TreeStore, images: ImageHolder) -> None:
        self._store = store
        self._images = images
        self.check_broker: Callable[[str, Mapping[str, str]], str | None] = lambda name, overrides: None
        """Whoever knows more about a broker's settings than the table: what is wrong with them, or None."""

    async def alter_incrementally(
        self, key: ConfigKey, alterations: Sequence[Alteration], *, validate_only: bool = False
    ) -> None:
        """Apply alterations to the overrides that a resource has now. Raises Refusal."""
        _check_alterations(key[0], alterations)

        def change(current: Mapping[str, str]) -> dict[str, str]:
            changed = dict(current)
            for alteration in alterations:
                _apply(key[0], changed, alteration, self._list_default(alteration.name))
            self._check_result(key, changed, {a.name: changed.get(a.name) for a in alterations})
            self._check_resource(key)
            return changed

        await self._update(key, change, validate_only)

    async def replace(
        self, key: ConfigKey, overrides: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """The old AlterConfigs: these overrides and no others. Raises Refusal."""
        nulls = sorted(name for name, value in overrides.items() if value is None)
        if nulls:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {nulls[0]}")
        wanted = {name: value for name, value in overrides.items() if value is not None}

        def change(current: Mapping[str, str]) -> dict[str, str]:
            self._check_result(key, wanted, wanted)
            self._check_resource(key)
            return wanted

        await self._update(key, change, validate_only)

    async def write(self, key: ConfigKey, overrides: Mapping[str, str]) -> None:
        """Overrides of a kind that has its own checks elsewhere (users, clients, ips, groups)."""
        await self._update(key, lambda _: dict(overrides), validate_only=False)

    async def amend(self, key: ConfigKey, changes: Mapping[str, str | None]) -> None:
        """Set some overrides of such a kind (None takes one away) and leave the others as they are."""

        def change(current: Mapping[str, str]) -> dict[str, str]:
            merged = {**current, **changes}
            return {name: value for name, value in merged.items() if value is not None}

        await self._update(key, change, validate_only=False)

    async def read(self, key: ConfigKey) -> dict[str, str]:
        """The overrides as the store has them now."""
        path = znodes.config_path(key)
        try:
            return znodes.decode_config(path, (await self._store.get(path)).data)
        except NoNode:
            return {}

    async def _update(
        self, key: ConfigKey, change: Callable[[Mapping[str, str]], dict[str, str]], validate_only: bool
    ) -> None:
        path = znodes.config_path(key)
        notification = Create(
            f"{znodes.CONFIG_CHANGES}/config_change_", znodes.encode_config_change(key), sequential=True
        )
        for _ in range(MAX_RACES):
            try:
                node = await self._store.get(path)
            except NoNode:
                node = None
            current = znodes.decode_config(path, node.data) if node is not None else {}
            wanted = change(current)
            if validate_only:
                return
            data = znodes.encode_config(wanted)
            write: Operation
            if node is not None:
                write = SetData(path, data, node.stat.version)
            else:
                await self._store.ensure_path(path.rpartition("/")[0])
                write = Create(path, data)
            try:
                await self._store.multi([write, notification])
            except MultiFailed as failed:
                if isinstance(failed.error, BadVersion | NodeExists | NoNode):
                    continue
                raise
            await self._wait_for(key, wanted)
            return
        raise Refusal(ErrorCode.REQUEST_TIMED_OUT, "The resource keeps changing; try again.")

    async def _wait_for(self, key: ConfigKey, wanted: Mapping[str, str]) -> None:
        def shown(image: MetadataImage) -> bool:
            return image.config(*key) == wanted or (key[0] == "topic" and key[1] not in image.topics)

        await self._images.wait_until(shown, WAIT_FOR_IMAGE_SECONDS)

    def _check_resource(self, key: ConfigKey) -> None:
        """After the values, as in Kafka: what could never be set is said first."""
        kind, name = key
        if kind == "topic" and name not in self._images.image.topics:
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")

    def _check_result(self, key: ConfigKey, overrides: Mapping[str, str], changed: Mapping[str, str | None]) -> None:
        _check_result(key, overrides, changed)
        problem = self.check_broker(key[1], overrides) if key[0] == "broker" else None
        if problem is not None:
            raise Refusal(ErrorCode.INVALID_REQUEST, problem)

    @staticmethod
    def _list_default(name: str) -> str:
        setting = TOPIC_SETTINGS.get(name) or BROKER_SETTINGS.get(name)
        return (setting.render(setting.default) if setting is not None else None) or ""


def _check_alterations(kind: str, alterations: Sequence[Alteration]) -> None:
    seen: set[str] = set()
    for alteration in alterations:
        if alteration.name in seen:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"Config {alteration.name} is altered more than once.")
        seen.add(alteration.name)
        if alteration.value is None and alteration.kind is not AlterKind.DELETE:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {alteration.name}")


def _apply(kind: str, overrides: dict[str, str], alteration: Alteration, default: str) -> None:
    name, value = alteration.name, alteration.value or ""
    if alteration.kind is AlterKind.SET:
        overrides[name] = value
        return
    if alteration.kind is AlterKind.DELETE:
        overrides.pop(name, None)
        return
    setting = (TOPIC_SETTINGS if kind == "topic" else BROKER_SETTINGS).get(name)
    if setting is not None and setting.type != LIST:
        raise Refusal(
            ErrorCode.INVALID_CONFIG, f"Can't {alteration.kind.name} to key {name} because its type is not LIST."
        )
    current = [item for item in overrides.get(name, default).split(",") if item]
    items = [item.strip() for item in value.split(",") if item.strip()]
    if alteration.kind is AlterKind.APPEND:
        current += [item for item in items if item not in current]
    else:
        current = [item for item in current if item not in items]
    overrides[name] = ",".join(current)


def _check_result(key: ConfigKey, overrides: Mapping[str, str], changed: Mapping[str, str | None]) -> None:
    kind, name = key
    if kind == "topic":
        problems = topic_problems(dict(overrides))
        if problems:
            raise Refusal(ErrorCode.INVALID_CONFIG, problems[0].message)
    elif kind == "broker":
        broker = broker_problems(changed, whole_cluster=name == "")
        if broker:
            raise Refusal(ErrorCode.INVALID_REQUEST, broker[0].message)
