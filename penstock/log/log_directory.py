"""One entry of `log.dirs`: its lock, its identity, its checkpoints, and the names of the replica folders in it."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import threading
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from penstock.log import disk
from penstock.log.files import fsync_directory, write_durably
from penstock.log.offset_checkpoints import OffsetCheckpoints

LOCK_FILE: Final = ".lock"
META_PROPERTIES: Final = "meta.properties"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
DELETE_SUFFIX: Final = "-delete"
FUTURE_SUFFIX: Final = "-future"
STRAY_SUFFIX: Final = "-stray"
ACCEPTED_LOSS: Final = ".penstock_accepted_loss"
"""Left by `penstock log accept-loss`: replicas that are found nowhere may be begun anew."""
NAME_MAX: Final = 255

# POSIX locks do not keep two brokers of one process apart; this does.
_locked_here: set[str] = set()
_locked_here_guard = threading.Lock()


class FolderInUse(Exception):
    """Another broker has this folder open."""


class ForeignFolder(Exception):
    """The folder belongs to another broker or cluster."""


class UnknownFolder(OSError):
    """A folder without `meta.properties` on a broker that has replicas on record: a disk that was replaced or is not
    mounted. It is taken for failed until the operator says otherwise."""


def partition_of(folder_name: str) -> tuple[str, int] | None:
    """(topic, partition) of a replica's folder; None for any other name."""
    if folder_name.endswith((DELETE_SUFFIX, FUTURE_SUFFIX, STRAY_SUFFIX)):
        return None
    topic, dash, digits = folder_name.rpartition("-")
    if not topic or not dash or not digits.isascii() or not digits.isdigit():
        return None
    return topic, int(digits)


class LogDirectory:
    """See the module. Any method may raise OSError: then the folder has failed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.was_clean = False
        self.id = ""
        """`directory.id` of its meta.properties: another disk at the same place has another one."""
        self.clean_stop: tuple[int, int] | None = None
        """First and last broker epoch of the process that stopped in peace here, as its marker says."""
        self._lock_fd = -1
        self._lock_key = ""
        self.checkpoints = OffsetCheckpoints(path)

    # -- lock and identity

    def open(self, node_id: int, cluster_id: str | None, *, may_be_new: bool = True) -> None:
        """Create if needed, lock, check whose it is. FolderInUse and ForeignFolder concern the operator."""
        if not may_be_new and not (self.path / META_PROPERTIES).exists():
            raise UnknownFolder(
                f"{self.path} has no {META_PROPERTIES}, but this broker has replicas on record: the disk was replaced"
                " or is not mounted. Mount it, or give its data up with `penstock log accept-loss`"
            )
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock()
        try:
            self._check_identity(node_id, cluster_id)
            marker = self.path / CLEAN_SHUTDOWN
            self.was_clean = marker.exists()
            if self.was_clean:
                self.clean_stop = _read_clean_stop(marker)
                # From here on a crash is a crash.
                disk.unlink(marker)
                fsync_directory(self.path)
        except BaseException:
            self.unlock()
            raise

    def _lock(self) -> None:
        key = os.path.realpath(self.path)
        with _locked_here_guard:
            if key in _locked_here:
                raise FolderInUse(f"{self.path} is in use by another broker of this process")
            fd = os.open(self.path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError) as error:
                os.close(fd)
                raise FolderInUse(f"{self.path} is in use by another broker") from error
            except BaseException:
                os.close(fd)
                raise
            _locked_here.add(key)
            self._lock_key = key
            self._lock_fd = fd

    def unlock(self) -> None:
        """Give the folder free."""
        if self._lock_fd < 0:
            return
        with _locked_here_guard:
            with contextlib.suppress(OSError):
                (self.path / LOCK_FILE).unlink(missing_ok=True)
            os.close(self._lock_fd)
            self._lock_fd = -1
            _locked_here.discard(self._lock_key)

    def _check_identity(self, node_id: int, cluster_id: str | None) -> None:
        path = self.path / META_PROPERTIES
        try:
            found = read_properties(path)
        except FileNotFoundError:
            found = {}
        stored_id = found.get("broker.id", found.get("node.id"))
        if stored_id is not None and stored_id != str(node_id):
            raise ForeignFolder(f"{self.path} belongs to broker {stored_id}, not to {node_id}")
        stored_cluster = found.get("cluster.id")
        if cluster_id is not None and stored_cluster is not None and stored_cluster != cluster_id:
            raise ForeignFolder(f"{self.path} belongs to cluster {stored_cluster}, not to {cluster_id}")
        complete = {"version": "0", **found}
        if stored_id is None:
            complete["broker.id"] = str(node_id)
        if cluster_id is not None:
            complete["cluster.id"] = cluster_id
        self.id = complete.setdefault("directory.id", new_directory_id())
        if complete != found:
            write_properties(path, complete)

    @property
    def loss_is_accepted(self) -> bool:
        return (self.path / ACCEPTED_LOSS).exists()

    def forget_acceptance(self) -> None:
        disk.discard(self.path / ACCEPTED_LOSS)
        fsync_directory(self.path)

    def mark_clean(self, broker_epochs: tuple[int, int] | None = None) -> None:
        """The last thing of an orderly stop. Kafka's content, and the first epoch of the process besides the last."""
        body = {"version": 0, "brokerEpoch": -1}
        if broker_epochs is not None:
            body |= {"brokerEpoch": broker_epochs[1], "firstBrokerEpoch": broker_epochs[0]}
        write_durably(self.path / CLEAN_SHUTDOWN, json.dumps(body).encode())

    # -- replica folders

    def replica_folders(self) -> list[tuple[str, int, Path]]:
        """(topic, partition, folder) of every replica, sorted."""
        found = []
        for entry in os.scandir(self.path):
            named = partition_of(entry.name)
            if named is not None and entry.is_dir():
                found.append((*named, self.path / entry.name))
        return sorted(found)

    def doomed_folders(self) -> list[Path]:
        """Replicas whose deletion, or whose move to here, a stop interrupted."""
        doomed = (DELETE_SUFFIX, FUTURE_SUFFIX)
        return [self.path / entry.name for entry in os.scandir(self.path) if entry.name.endswith(doomed)]

    def rename_for_deletion(self, folder: Path) -> Path:
        """The folder under a name that no broker loads; the caller syncs this directory."""
        return _renamed(folder, DELETE_SUFFIX)

    def set_aside(self, folder: Path) -> Path:
        """The folder under a name that no broker loads and nobody deletes soon; its age counts from now."""
        target = _renamed(folder, STRAY_SUFFIX)
        os.utime(target)
        return target

    def stray_folders(self) -> list[tuple[Path, int]]:
        """(folder, when it was set aside in ms) of every replica that nobody claims."""
        return [
            (self.path / entry.name, entry.stat().st_mtime_ns // 1_000_000)
            for entry in os.scandir(self.path)
            if entry.name.endswith(STRAY_SUFFIX) and entry.is_dir()
        ]


def _renamed(folder: Path, suffix: str) -> Path:
    ending = f".{uuid.uuid4().hex}{suffix}"
    target = folder.with_name(folder.name[: NAME_MAX - len(ending)] + ending)
    disk.replace(folder, target)
    return target


def new_directory_id() -> str:
    """A random id in Kafka's form."""
    made_up = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
    return made_up if not made_up.startswith("-") else new_directory_id()


def write_properties(path: Path, fields: Mapping[str, str]) -> None:
    write_durably(path, ("#\n" + "".join(f"{name}={value}\n" for name, value in fields.items())).encode())


def read_properties(path: Path) -> dict[str, str]:
    fields: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith(("#", "!")):
            key, _, value = line.partition("=")
            fields[key.strip()] = value.strip()
    return fields


def accept_loss(path: Path) -> None:
    """The operator's word that replicas which this broker does not find are lost. A folder that nobody has used yet,
    on a new disk, becomes one of the broker's with it."""
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not is_known_folder(path):
        write_properties(path / META_PROPERTIES, {"version": "0", "directory.id": new_directory_id()})
    write_durably(path / ACCEPTED_LOSS, b"")


def is_known_folder(path: Path) -> bool:
    """Has it been some broker's before? A folder that cannot be looked into counts as known: opening it will tell."""
    try:
        return (path / META_PROPERTIES).exists()
    except OSError:
        return True


def stored_node_id(folders: Iterable[Path]) -> int | None:
    """The broker id that the first of these folders was written under; None if none of them says."""
    for folder in folders:
        try:
            found = read_properties(folder / META_PROPERTIES)
        except (OSError, UnicodeDecodeError):
            continue
        text = found.get("broker.id", found.get("node.id", ""))
        if text.isascii() and text.isdigit() and len(text) <= 10:
            return int(text)
    return None


def _read_clean_stop(marker: Path) -> tuple[int, int] | None:
    """None: written by something that knew no epochs, which proves nothing."""
    try:
        body = json.loads(marker.read_bytes())
        last = int(body["brokerEpoch"])
        return (int(body.get("firstBrokerEpoch", last)), last) if last >= 0 else None
    except (ValueError, KeyError, TypeError):
        return None
