"""Which partition of an internal topic holds a key: Java's String.hashCode, as every Kafka broker computes it."""

from __future__ import annotations

from functools import lru_cache

__all__ = ["java_string_hash", "partition_of"]


@lru_cache(maxsize=65_536)
def java_string_hash(text: str) -> int:
    value = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(encoded), 2):
        value = (value * 31 + (encoded[position] << 8) + encoded[position + 1]) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_of(key: str, partition_count: int) -> int:
    value = java_string_hash(key)
    return (0 if value == -(1 << 31) else abs(value)) % partition_count
