"""CRC-32C (Castagnoli), the checksum of record batches and producer snapshots: one thin door to the native code."""

from __future__ import annotations

import importlib.machinery
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["crc32c", "native_crc32c"]


def _load_native() -> Any:
    """The extension module alone: the package around it reads its own metadata, which costs a start 20 ms."""
    package = importlib.util.find_spec("crc32c")
    for folder in (package.submodule_search_locations or []) if package is not None else []:
        for suffix in importlib.machinery.EXTENSION_SUFFIXES:
            path = Path(folder) / f"_crc32c{suffix}"
            if path.exists():
                loader = importlib.machinery.ExtensionFileLoader("crc32c._crc32c", str(path))
                spec = importlib.util.spec_from_loader("crc32c._crc32c", loader)
                if spec is not None:
                    module = importlib.util.module_from_spec(spec)
                    loader.exec_module(module)
                    return module
    return importlib.import_module("crc32c")


native_crc32c: Callable[[bytes | bytearray | memoryview], int] = _load_native().crc32c
"""Unsigned CRC-32C of a whole buffer, at memory speed where the processor has the instruction."""

crc32c = native_crc32c
