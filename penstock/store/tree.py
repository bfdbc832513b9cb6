"""ZooKeeper's tree in memory: the rules, without clients, disks or loops.

`Tree.apply` runs a transaction of one session and says which nodes changed and which watch events follow. The embedded
store adds durability and callbacks; the cluster simulation uses the tree as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from penstock.store.interface import (
    ANY_VERSION,
    BadVersion,
    Create,
    Delete,
    EventKind,
    InvalidPath,
    MultiFailed,
    NoChildrenForEphemerals,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    OperationResult,
    SetData,
    Stat,
    StoreError,
    WatchEvent,
)


@dataclass(slots=True)
class TreeNode:
    """One node. `created_children` only grows: it numbers sequential children (ZooKeeper's internal cversion)."""

    data: bytes
    czxid: int
    mzxid: int
    pzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int = 0
    created_children: int = 0
    ephemeral_owner: int = 0
    children: set[str] = field(default_factory=set)

    def stat(self) -> Stat:
        # ZooKeeper shows twice the creates minus the children that are left: creates plus deletes.
        shown_cversion = self.created_children * 2 - len(self.children)
        return Stat(
            czxid=self.czxid,
            mzxid=self.mzxid,
            pzxid=self.pzxid,
            ctime_ms=self.ctime_ms,
            mtime_ms=self.mtime_ms,
            version=self.version,
            cversion=shown_cversion,
            ephemeral_owner=self.ephemeral_owner,
            data_length=len(self.data),
            children_count=len(self.children),
        )

    def copy(self) -> TreeNode:
        return TreeNode(
            self.data,
            self.czxid,
            self.mzxid,
            self.pzxid,
            self.ctime_ms,
            self.mtime_ms,
            self.version,
            self.created_children,
            self.ephemeral_owner,
            set(self.children),
        )


@dataclass(slots=True)
class Transaction:
    """What a transaction did: `changed` maps each touched path to its new node, None when it was deleted."""

    zxid: int
    results: list[OperationResult]
    changed: dict[str, TreeNode | None]
    events: list[WatchEvent]


def check_path(path: str) -> None:
    if not path.startswith("/") or (path != "/" and path.endswith("/")) or "//" in path or "\0" in path:
        raise InvalidPath(path)
    if any(part in (".", "..") for part in path.split("/")):
        raise InvalidPath(path)


def parent_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"


class Tree:
    def __init__(self) -> None:
        self.zxid = 0
        self.nodes: dict[str, TreeNode] = {"/": TreeNode(b"", 0, 0, 0, 0, 0)}

    def get(self, path: str) -> Node:
        check_path(path)
        node = self.nodes.get(path)
        if node is None:
            raise NoNode(path)
        return Node(node.data, node.stat())

    def exists(self, path: str) -> Stat | None:
        check_path(path)
        node = self.nodes.get(path)
        return node.stat() if node is not None else None

    def children(self, path: str) -> list[str]:
        check_path(path)
        node = self.nodes.get(path)
        if node is None:
            raise NoNode(path)
        return sorted(node.children)

    def ephemerals_of(self, session_id: int) -> list[str]:
        """Paths of the nodes that die with this session."""
        return sorted(path for path, node in self.nodes.items() if node.ephemeral_owner == session_id)

    def apply(self, operations: Sequence[Operation], session_id: int, now_ms: int) -> Transaction:
        """All operations or, with MultiFailed, none."""
        transaction = self.prepare(operations, session_id, now_ms)
        self.commit(transaction)
        return transaction

    def prepare(self, operations: Sequence[Operation], session_id: int, now_ms: int) -> Transaction:
        """Work the transaction out without changing the tree, for a caller that must make it durable first."""
        transaction = Transaction(self.zxid + 1, [], {}, [])
        for index, operation in enumerate(operations):
            try:
                transaction.results.append(self._perform(operation, transaction, session_id, now_ms))
            except StoreError as error:
                raise MultiFailed(index, error) from None
        return transaction

    def commit(self, transaction: Transaction) -> None:
        if not transaction.changed:
            return
        self.zxid = transaction.zxid
        for path, node in transaction.changed.items():
            if node is None:
                self.nodes.pop(path, None)
            else:
                self.nodes[path] = node

    def load(self, rows: Iterable[tuple[str, TreeNode]], zxid: int) -> None:
        """Take over stored nodes; children sets are rebuilt from the paths."""
        self.zxid = zxid
        for path, node in rows:
            self.nodes[path] = node
        for path in self.nodes:
            if path != "/":
                self.nodes[parent_of(path)].children.add(path.rpartition("/")[2])

    def _writable(self, path: str, transaction: Transaction) -> TreeNode:
        if path in transaction.changed:
            node = transaction.changed[path]
        else:
            node = self.nodes.get(path)
            if node is not None:
                node = transaction.changed[path] = node.copy()
        if node is None:
            raise NoNode(path)
        return node

    def _peek(self, path: str, transaction: Transaction) -> TreeNode | None:
        return transaction.changed[path] if path in transaction.changed else self.nodes.get(path)

    def _perform(self, operation: Operation, transaction: Transaction, session_id: int, now_ms: int) -> OperationResult:
        check_path(operation.path)
        if isinstance(operation, Create):
            return self._create(operation, transaction, session_id, now_ms)
        node = self._peek(operation.path, transaction)
        if node is None:
            raise NoNode(operation.path)
        if operation.version not in (ANY_VERSION, node.version):
            raise BadVersion(operation.path, f"expected {operation.version}, is {node.version}")
        if isinstance(operation, SetData):
            node = self._writable(operation.path, transaction)
            node.data, node.version = operation.data, node.version + 1
            node.mzxid, node.mtime_ms = transaction.zxid, now_ms
            transaction.events.append(WatchEvent(EventKind.CHANGED, operation.path))
            return node.stat()
        if isinstance(operation, Delete):
            self._delete(operation.path, node, transaction)
        return None

    def _create(self, operation: Create, transaction: Transaction, session_id: int, now_ms: int) -> str:
        path = operation.path
        parent_path = parent_of(path)
        if self._peek(parent_path, transaction) is None:
            raise NoNode(path)
        if path == "/" or (not operation.sequential and self._peek(path, transaction) is not None):
            raise NodeExists(path)
        parent = self._writable(parent_path, transaction)
        if parent.ephemeral_owner:
            raise NoChildrenForEphemerals(path)
        if operation.sequential:
            path = f"{path}{parent.created_children:010d}"
            if self._peek(path, transaction) is not None:
                raise NodeExists(path)
        parent.created_children += 1
        parent.pzxid = transaction.zxid
        parent.children.add(path.rpartition("/")[2])
        owner = session_id if operation.ephemeral else 0
        zxid = transaction.zxid
        transaction.changed[path] = TreeNode(operation.data, zxid, zxid, zxid, now_ms, now_ms, ephemeral_owner=owner)
        transaction.events.append(WatchEvent(EventKind.CREATED, path))
        transaction.events.append(WatchEvent(EventKind.CHILDREN, parent_path))
        return path

    def _delete(self, path: str, node: TreeNode, transaction: Transaction) -> None:
        if path == "/":
            raise InvalidPath(path)
        if node.children:
            raise NotEmpty(path)
        parent_path = parent_of(path)
        parent = self._writable(parent_path, transaction)
        parent.children.discard(path.rpartition("/")[2])
        parent.pzxid = transaction.zxid
        transaction.changed[path] = None
        transaction.events.append(WatchEvent(EventKind.DELETED, path))
        transaction.events.append(WatchEvent(EventKind.CHILDREN, parent_path))
