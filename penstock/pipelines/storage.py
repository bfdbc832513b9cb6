"""Small files that pipelines keep, on a local folder or on anything that Spark can write (hdfs://, s3a://, …).

`write_text` is atomic: a reader sees the old text or the new one.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from pathlib import Path
from typing import Any, Protocol


class Storage(Protocol):
    root: str

    def at(self, *parts: str) -> str: ...
    def exists(self, name: str) -> bool: ...
    def names(self, name: str = "") -> list[str]: ...
    def size(self, name: str) -> int: ...
    def read_text(self, name: str) -> str | None: ...
    def write_text(self, name: str, text: str) -> None: ...
    def move(self, source: str, target: str) -> None: ...
    def delete(self, name: str = "") -> None: ...


def is_local(path: str) -> bool:
    return not re.match(r"[a-z][a-z0-9+.\-]*://", path) or path.startswith("file:/")


def storage(path: str, spark: Any = None) -> Storage:
    """The storage behind a path; a path with a scheme other than file: needs Spark."""
    if is_local(path):
        return LocalStorage(path.removeprefix("file://").removeprefix("file:"))
    if spark is None:
        raise ValueError(f"{path} can only be reached through Spark")
    if not hasattr(spark, "_jsparkSession"):
        raise ValueError(f"{path} cannot be reached from here through Spark Connect: give a folder that both can write")
    return HadoopStorage(path, spark)


class ReadOnly:
    """Reads from another storage and writes nothing: for looking at a pipeline without touching it."""

    def __init__(self, inner: Storage) -> None:
        self._inner = inner
        self.root = inner.root

    def at(self, *parts: str) -> str:
        return self._inner.at(*parts)

    def exists(self, name: str) -> bool:
        return self._inner.exists(name)

    def names(self, name: str = "") -> list[str]:
        return self._inner.names(name)

    def size(self, name: str) -> int:
        return self._inner.size(name)

    def read_text(self, name: str) -> str | None:
        return self._inner.read_text(name)

    def write_text(self, name: str, text: str) -> None:
        return

    def move(self, source: str, target: str) -> None:
        return

    def delete(self, name: str = "") -> None:
        return


class LocalStorage:
    def __init__(self, root: str) -> None:
        self.root = str(Path(root).absolute())

    def at(self, *parts: str) -> str:
        return str(Path(self.root, *parts))

    def exists(self, name: str) -> bool:
        return Path(self.at(name)).exists()

    def names(self, name: str = "") -> list[str]:
        folder = Path(self.at(name))
        return sorted(item.name for item in folder.iterdir()) if folder.is_dir() else []

    def size(self, name: str) -> int:
        return Path(self.at(name)).stat().st_size

    def read_text(self, name: str) -> str | None:
        try:
            return Path(self.at(name)).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def _make_room(self, target: Path) -> None:
        """State holds rows: what lies below the root is for its owner, whoever else writes there (Spark does)."""
        Path(self.root).mkdir(parents=True, exist_ok=True, mode=0o700)
        target.parent.mkdir(parents=True, exist_ok=True)

    def write_text(self, name: str, text: str) -> None:
        target = Path(self.at(name))
        self._make_room(target)
        fresh = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
        with fresh.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(target)
        self._sync_folder(target.parent)

    def _sync_folder(self, folder: Path) -> None:
        """A rename is durable only after this."""
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def move(self, source: str, target: str) -> None:
        self._make_room(Path(self.at(target)))
        Path(self.at(source)).replace(self.at(target))

    def delete(self, name: str = "") -> None:
        path = Path(self.at(name))
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


class HadoopStorage:
    """The same through Hadoop's file systems, in the driver's JVM."""

    def __init__(self, root: str, spark: Any) -> None:
        self.root = root.rstrip("/")
        self._jvm = spark._jvm
        self._system = self._path("").getFileSystem(spark._jsc.hadoopConfiguration())

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.at(name))

    def at(self, *parts: str) -> str:
        return "/".join([self.root, *(part for part in parts if part)])

    def exists(self, name: str) -> bool:
        return bool(self._system.exists(self._path(name)))

    def names(self, name: str = "") -> list[str]:
        if not self.exists(name):
            return []
        return sorted(item.getPath().getName() for item in self._system.listStatus(self._path(name)))

    def size(self, name: str) -> int:
        return int(self._system.getFileStatus(self._path(name)).getLen())

    def read_text(self, name: str) -> str | None:
        if not self.exists(name):
            return None
        stream = self._system.open(self._path(name))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write_text(self, name: str, text: str) -> None:
        fresh = f"{name}.{uuid.uuid4().hex}.tmp"
        stream = self._system.create(self._path(fresh), True)
        stream.write(bytearray(text.encode()))
        stream.close()
        self._system.delete(self._path(name), False)
        self.move(fresh, name)

    def move(self, source: str, target: str) -> None:
        parent = self._path(target).getParent()
        self._system.mkdirs(parent)
        if not self._system.rename(self._path(source), self._path(target)):
            raise OSError(f"{self.at(source)} could not be renamed to {self.at(target)}")

    def delete(self, name: str = "") -> None:
        self._system.delete(self._path(name), True)
