"""Moving a single node's tree into ZooKeeper: topics, ids, configs, producer ids, users, the cluster id.

The node must be stopped (the embedded store is locked while it runs). Afterwards it goes on as the first broker of a
cluster, with the same log folder and `zookeeper.connect` in its settings. The SQLite file stays as it is, renamed, so
that a move can be looked at; nothing is deleted.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from penstock.base.settings import Settings
from penstock.store.embedded import EmbeddedDatabase, EmbeddedStore
from penstock.store.interface import Create, MultiFailed, NodeExists, Operation, SetData, TreeStore

MIGRATED_SUFFIX = ".migrated"
OPERATIONS_PER_MULTI = 100


class MigrationRefused(Exception):
    """The target is not what it should be; nothing was written."""


@dataclass(frozen=True, slots=True)
class Migration:
    nodes: int
    topics: int
    cluster_id_node: bytes
    left_behind: Path | None
    """Where the old store file is now."""


async def migrate(source_file: Path, target: TreeStore, *, keep_source: bool = False) -> Migration:
    """Copy the tree of an embedded store into an empty (or just chrooted) ZooKeeper. `target` is a started session."""
    if not source_file.exists():  # noqa: ASYNC240 - a tool that does nothing else
        raise MigrationRefused(f"there is no store file {source_file}")
    if await target.exists("/brokers/topics") is not None and await target.children("/brokers/topics"):
        raise MigrationRefused(
            "the ZooKeeper tree already has topics: use an empty chroot, for example host:2181/penstock"
        )
    if await target.exists("/cluster/id") is not None:
        raise MigrationRefused("the ZooKeeper tree already belongs to a cluster: use an empty chroot")
    source = EmbeddedStore(EmbeddedDatabase(source_file))
    await source.start()
    try:
        copied = await _copy(source, target)
        topics = len(await source.children("/brokers/topics")) if await source.exists("/brokers/topics") else 0
        cluster_id = (await source.get("/cluster/id")).data if await source.exists("/cluster/id") else b""
    finally:
        await source.close()
    left_behind = None
    if not keep_source:
        left_behind = source_file.with_name(source_file.name + MIGRATED_SUFFIX)
        source_file.rename(left_behind)  # noqa: ASYNC240
    return Migration(copied, topics, cluster_id, left_behind)


async def migrate_to_zookeeper(source_file: Path, settings: Settings, *, keep_source: bool = False) -> Migration:
    """What `penstock store migrate --to zookeeper` does: `settings` say where ZooKeeper is and how to log in."""
    from penstock.store.zookeeper import ZooKeeperStore

    target = ZooKeeperStore(settings)
    await target.start()
    try:
        return await migrate(source_file, target, keep_source=keep_source)
    finally:
        await target.close()


async def _copy(source: TreeStore, target: TreeStore) -> int:
    """Parents before children. The cluster id goes last: a tree without it is a move that did not finish."""
    pending: list[Operation] = []
    copied = 0
    last: list[Operation] = []
    for path in await _paths(source, "/"):
        if path == "/controller" or path.startswith("/brokers/ids/"):
            continue  # who is alive is for sessions to say, not for a copy
        data = (await source.get(path)).data
        if path == "/cluster/id":
            last.append(Create(path, data))
            continue
        exists = await target.exists(path) is not None
        pending.append(SetData(path, data) if exists else Create(path, data))
        copied += 1
        if len(pending) >= OPERATIONS_PER_MULTI:
            await _write(target, pending)
            pending = []
    await _write(target, pending)
    await _write(target, last)
    return copied + len(last)


async def _write(target: TreeStore, operations: list[Operation]) -> None:
    if not operations:
        return
    try:
        await target.multi(operations)
    except MultiFailed as failed:
        if isinstance(failed.error, NodeExists):
            raise MigrationRefused(f"somebody else writes {failed.error.path} into the target tree") from failed
        raise


async def _paths(store: TreeStore, root: str) -> list[str]:
    """All paths below `root`, parents first."""
    found: list[str] = []
    for name in await store.children(root):
        path = f"{root.rstrip('/')}/{name}"
        found.append(path)
        found += await _paths(store, path)
    return found
