"""Users before the first start: written into the store itself, by whoever may read a broker's settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cluster import znodes
from penstock.security.scram import make_credential
from penstock.store.interface import Create, NoNode, Operation, SetData, TreeStore

if TYPE_CHECKING:
    from penstock.base.settings import Settings

__all__ = ["change_stored_user", "open_store", "store_passwords"]


def open_store(settings: Settings) -> TreeStore:
    """The store that a broker of these settings has. The embedded one must not be in use."""
    if not settings.embedded:
        from penstock.store.zookeeper import ZooKeeperStore

        return ZooKeeperStore(settings)
    from penstock.store.embedded import EmbeddedDatabase, EmbeddedStore

    path = Path(settings["penstock.store.path"] or Path(settings.log_dirs[0]) / "penstock.db")
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    return EmbeddedStore(EmbeddedDatabase(path))


async def change_stored_user(store: TreeStore, name: str, changes: Mapping[str, str | None]) -> bool:
    """Set or (None) remove credentials by mechanism; False if nothing would change."""
    key = ("user", znodes.sanitize(name))
    path = znodes.config_path(key)
    try:
        node = await store.get(path)
        current = znodes.decode_config(path, node.data)
    except NoNode:
        node, current = None, {}
    wanted = {**current, **changes}
    config = {mechanism: text for mechanism, text in wanted.items() if text is not None}
    if config == current:
        return False
    await store.ensure_paths([*znodes.PERSISTENT_PATHS])
    data = znodes.encode_config(config)
    write: Operation = Create(path, data) if node is None else SetData(path, data, node.stat.version)
    told = Create(f"{znodes.CONFIG_CHANGES}/config_change_", znodes.encode_config_change(key), sequential=True)
    await store.multi([write, told])
    return True


async def store_passwords(settings: Settings, passwords: Mapping[str, str], mechanism: str) -> None:
    """These users have these passwords from now on."""
    store = open_store(settings)
    await store.start()
    try:
        for name, password in passwords.items():
            await change_stored_user(store, name, {mechanism: str(make_credential(mechanism, password))})
    finally:
        await store.close()
