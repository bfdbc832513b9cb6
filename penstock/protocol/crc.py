"""CRC-32C (Castagnoli), the checksum of record batches and producer snapshots: one thin door to the native code."""

from __future__ import annotations

from collections.abc import Callable

from crc32c import crc32c as _native_crc32c

native_crc32c: Callable[[bytes | bytearray | memoryview], int] = _native_crc32c
"""Unsigned CRC-32C of a whole buffer, at memory speed where the processor has the instruction."""

crc32c = native_crc32c
