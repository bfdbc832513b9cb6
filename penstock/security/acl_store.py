"""ACLs in the tree store, in Kafka's layout: one node per resource pattern, and numbered notes about what changed.

Every broker keeps all of them in memory and follows the notes; whoever changes something reads its own write before it
answers. A name that no node may have (`/`, control characters) is percent-encoded, which Kafka never did.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import urllib.parse
from collections.abc import Callable, Iterable, Sequence

from penstock.base.clock import Clock
from penstock.cluster.loading import gather_bounded
from penstock.cluster.znodes import MalformedNode, dump, load
from penstock.security.acl_model import (
    STORED_TYPES,
    WILDCARD,
    WILDCARD_PRINCIPAL,
    AclBinding,
    AclFilter,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
)
from penstock.security.acls import AclSet
from penstock.store.interface import (
    BadVersion,
    ConnectionLost,
    Create,
    Delete,
    MultiFailed,
    Node,
    NodeExists,
    NoNode,
    SessionState,
    SetData,
    StoreError,
    TreeStore,
)
from penstock.store.interface import (
    Operation as StoreOperation,
)
from penstock.store.subscriptions import ChildrenSubscription

logger = logging.getLogger(__name__)

ROOTS = {PatternType.LITERAL: "/kafka-acl", PatternType.PREFIXED: "/kafka-acl-extended/prefixed"}
CHANGES = {PatternType.LITERAL: "/kafka-acl-changes", PatternType.PREFIXED: "/kafka-acl-extended-changes"}
NOTE_LIFETIME_MS = 15 * 60 * 1000
NOTES_CLEARED_PER_WRITE = 20
MAX_RACES = 20
RETRY_SECONDS = 0.2


class AclStore:
    """All ACLs of the cluster, kept current; `on_change` is told of each new set."""

    def __init__(self, store: TreeStore, clock: Clock, on_change: Callable[[AclSet], None]) -> None:
        self._store = store
        self._clock = clock
        self._on_change = on_change
        self.acls = AclSet()
        self._subscriptions: list[ChildrenSubscription] = []
        self._seen: dict[str, str] = {}  # the newest note of each folder that we have acted on
        self._notes: dict[str, list[str]] = {}
        self._reload = False
        self._wake = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._unlisten: Callable[[], None] = lambda: None

    # Life --------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        folders = [f"{root}/{kind.title}" for root in ROOTS.values() for kind in STORED_TYPES]
        await self._store.ensure_paths([*folders, *CHANGES.values()])
        for folder in CHANGES.values():
            names = await self._store.children(folder)
            self._seen[folder] = names[-1] if names else ""
        await self._load()
        for folder in CHANGES.values():
            subscription = ChildrenSubscription(self._store, folder, lambda names, f=folder: self._noted(f, names))  # type: ignore[misc]
            await subscription.start()
            self._subscriptions.append(subscription)
        self._unlisten = self._store.listen(self._on_session)
        self._task = asyncio.ensure_future(self._follow())

    async def stop(self) -> None:
        self._unlisten()
        for subscription in self._subscriptions:
            await subscription.stop()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # Following ---------------------------------------------------------------------------------------------------

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:  # after a gap, in which notes may have come and gone
            self._reload = True
            self._wake.set()

    def _noted(self, folder: str, names: list[str]) -> None:
        self._notes[folder] = names
        if names and names[-1] > self._seen[folder]:
            self._wake.set()

    async def _follow(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                if self._reload:
                    await self._load()
                    self._reload = False
                for folder in CHANGES.values():
                    await self._take_notes(folder)
            except ConnectionLost:
                await asyncio.sleep(RETRY_SECONDS)
                self._wake.set()
            except StoreError as error:  # the session is over; the next one wakes us
                logger.warning("ACLs cannot be read now: %s", error)

    async def _take_notes(self, folder: str) -> None:
        fresh = [name for name in self._notes.get(folder, ()) if name > self._seen[folder]]
        for name in fresh:
            try:
                pattern = decode_note(folder, (await self._store.get(f"{folder}/{name}")).data)
            except NoNode:
                pattern = None
            except MalformedNode as error:
                logger.error("reading all ACLs again, because a note about them cannot be read: %s", error)
                await self._load()
                pattern = None
            if pattern is not None:
                await self._refresh(pattern)
            self._seen[folder] = name

    async def _load(self) -> None:
        async with self._one_at_a_time:
            patterns: list[Pattern] = []
            for pattern_type, root in ROOTS.items():
                for kind in STORED_TYPES:
                    names = await self._store.children(f"{root}/{kind.title}")
                    patterns += [(kind, pattern_type, node_to_name(name)) for name in names]
            found = await gather_bounded(patterns, self._read_or_deny)
            self._publish(AclSet({p: bindings for p, bindings in zip(patterns, found, strict=True) if bindings}))

    async def _refresh(self, pattern: Pattern) -> None:
        async with self._one_at_a_time:
            bindings = await self._read_or_deny(pattern)
            if set(bindings) != set(self.acls.under(pattern)):
                self._publish(self.acls.replacing(pattern, bindings))

    def _publish(self, acls: AclSet) -> None:
        self.acls = acls
        self._on_change(acls)

    async def _read(self, pattern: Pattern) -> tuple[Node | None, tuple[AclBinding, ...]]:
        path = node_path(pattern)
        try:
            node = await self._store.get(path)
        except NoNode:
            return None, ()
        return node, decode_acls(path, pattern, node.data)

    async def _read_or_deny(self, pattern: Pattern) -> tuple[AclBinding, ...]:
        """Among rules that cannot be read may be one that denies: then nobody may do anything."""
        try:
            return (await self._read(pattern))[1]
        except MalformedNode as error:
            logger.error("ACLs cannot be read, their resource is closed to all: %s", error)
            kind, pattern_type, name = pattern
            return (AclBinding(kind, name, pattern_type, WILDCARD_PRINCIPAL, WILDCARD, Operation.ALL, Permission.DENY),)

    # Changing ----------------------------------------------------------------------------------------------------

    async def add(self, bindings: Iterable[AclBinding]) -> None:
        by_pattern: dict[Pattern, list[AclBinding]] = {}
        for binding in bindings:
            by_pattern.setdefault(binding.pattern, []).append(binding)
        for pattern, added in by_pattern.items():
            await self._change(pattern, lambda current, added=added: [*current, *added])  # type: ignore[misc]

    async def remove(self, filters: Sequence[AclFilter]) -> list[list[AclBinding]]:
        """What each filter found and deleted; a binding that several find is told by the first of them."""
        deleted: list[list[AclBinding]] = [[] for _ in filters]
        wanted = {b.pattern for f in filters for b in self.acls.matching(f)}
        for pattern in sorted(wanted):
            gone: list[AclBinding] = []

            def keep(current: Iterable[AclBinding], gone: list[AclBinding] = gone) -> list[AclBinding]:
                gone[:] = [b for b in current if any(f.matches(b) for f in filters)]
                return [b for b in current if b not in gone]

            await self._change(pattern, keep)
            for binding in gone:
                first = next(index for index, f in enumerate(filters) if f.matches(binding))
                deleted[first].append(binding)
        return deleted

    async def _change(self, pattern: Pattern, change: Callable[[Iterable[AclBinding]], list[AclBinding]]) -> None:
        path = node_path(pattern)
        folder = CHANGES[pattern[1]]
        note = Create(f"{folder}/acl_changes_", encode_note(pattern), sequential=True)
        for _ in range(MAX_RACES):
            node, current = await self._read(pattern)
            wanted = list(dict.fromkeys(change(current)))
            if set(wanted) == set(current):
                return
            write: StoreOperation
            if node is None:
                write = Create(path, encode_acls(wanted))
            elif wanted:
                write = SetData(path, encode_acls(wanted), node.stat.version)
            else:
                write = Delete(path, node.stat.version)
            try:
                await self._store.multi([write, note])
            except MultiFailed as failed:
                if isinstance(failed.error, BadVersion | NodeExists | NoNode):
                    continue  # another broker was faster
                raise failed.error from None
            await self._refresh(pattern)
            await self._clear_old_notes(folder)
            return
        raise ConnectionLost(path, "the ACLs of this resource keep changing")

    async def _clear_old_notes(self, folder: str) -> None:
        now_ms = self._clock.now_ms()
        for name in (await self._store.children(folder))[:NOTES_CLEARED_PER_WRITE]:
            stat = await self._store.exists(f"{folder}/{name}")
            if stat is not None and now_ms - stat.ctime_ms < NOTE_LIFETIME_MS:
                return
            with contextlib.suppress(NoNode):
                await self._store.delete(f"{folder}/{name}")


# Nodes and their contents ----------------------------------------------------------------------------------------


def node_path(pattern: Pattern) -> str:
    kind, pattern_type, name = pattern
    return f"{ROOTS[pattern_type]}/{kind.title}/{name_to_node(name)}"


def name_to_node(name: str) -> str:
    if name in (".", ".."):
        return name.replace(".", "%2E")
    return "".join(c if _may_stand_in_a_path(c) else urllib.parse.quote(c, safe="") for c in name)


def _may_stand_in_a_path(character: str) -> bool:
    code = ord(character)
    return character not in "/%" and 0x1F < code < 0xFFF0 and not (0x7F <= code <= 0x9F or 0xD800 <= code <= 0xF8FF)


def node_to_name(node: str) -> str:
    return urllib.parse.unquote(node)


def encode_acls(bindings: Iterable[AclBinding]) -> bytes:
    return dump(
        {
            "version": 1,
            "acls": [
                {
                    "principal": binding.principal,
                    "permissionType": binding.permission.title,
                    "operation": binding.operation.title,
                    "host": binding.host,
                }
                for binding in bindings
            ],
        }
    )


def decode_acls(path: str, pattern: Pattern, data: bytes) -> tuple[AclBinding, ...]:
    kind, pattern_type, name = pattern
    if not data:
        return ()
    try:
        return tuple(
            AclBinding(
                kind,
                name,
                pattern_type,
                str(row["principal"]),
                str(row["host"]),
                Operation(Operation.parse(row["operation"])),
                Permission(Permission.parse(row["permissionType"])),
            )
            for row in load(path, data).get("acls", ())
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MalformedNode(f"{path}: {error!r}") from error


def encode_note(pattern: Pattern) -> bytes:
    kind, pattern_type, name = pattern
    if pattern_type == PatternType.LITERAL:
        return f"{kind.name}:{name}".encode()
    return dump({"version": 1, "resourceType": kind.name, "name": name, "patternType": pattern_type.name})


def decode_note(folder: str, data: bytes) -> Pattern:
    try:
        if folder == CHANGES[PatternType.LITERAL]:
            kind, _, name = data.decode().partition(":")
            return ResourceType[kind.upper()], PatternType.LITERAL, name
        body = load(folder, data)
        return ResourceType[body["resourceType"]], PatternType[body["patternType"]], str(body["name"])
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedNode(f"{folder}: {error!r}") from error
