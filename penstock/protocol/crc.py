"""CRC-32C (Castagnoli), the checksum of record batches and producer snapshots: one thin door to the native code."""

from __future__ import annotations

from crc32c import crc32c as _native_crc32c


def crc32c(data: bytes | bytearray | memoryview) -> int:
    """Unsigned CRC-32C of all of `data`, at memory speed where the processor has the instruction."""
    return int(_native_crc32c(data))
