"""The payloads that classic consumers exchange through the group (protocol type `consumer`).

The broker looks inside only where it must: which topics a group is subscribed to, and for migration to KIP-848.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.coordinator.wire import MalformedRecord, Reader, Writer

__all__ = ["Subscription", "decode_assignment", "decode_subscription", "encode_assignment", "encode_subscription"]

PROTOCOL_TYPE = "consumer"
MAX_VERSION = 3


@dataclass(slots=True)
class Subscription:
    topics: list[str]
    user_data: bytes | None = None
    owned: dict[str, list[int]] = field(default_factory=dict)
    generation: int = -1
    rack_id: str | None = None
    version: int = 0


def decode_subscription(data: bytes) -> Subscription:
    """MalformedRecord if it is none; a version above ours is read as ours and its tail ignored."""
    reader = Reader(data)
    version = reader.i16()
    if version < 0:
        raise MalformedRecord(f"version {version} of a subscription")
    subscription = Subscription(reader.array(reader.string), version=min(version, MAX_VERSION))
    length = reader.i32()
    if length >= 0:
        reader.position += length
        subscription.user_data = reader.data[reader.position - length : reader.position]
    if version >= 1:
        subscription.owned = _read_partitions(reader)
    if version >= 2:
        subscription.generation = reader.i32()
    if version >= 3:
        subscription.rack_id = reader.nullable_string()
    return subscription


def encode_subscription(subscription: Subscription) -> bytes:
    writer = Writer().i16(subscription.version).i32(len(subscription.topics))
    for topic in subscription.topics:
        writer.string(topic)
    if subscription.user_data is None:
        writer.i32(-1)
    else:
        writer.blob(subscription.user_data)
    if subscription.version >= 1:
        _write_partitions(writer, subscription.owned)
    if subscription.version >= 2:
        writer.i32(subscription.generation)
    if subscription.version >= 3:
        writer.string(subscription.rack_id)
    return writer.done()


def decode_assignment(data: bytes) -> dict[str, list[int]]:
    reader = Reader(data)
    if reader.i16() < 0:
        raise MalformedRecord("a negative version of an assignment")
    return _read_partitions(reader)


def encode_assignment(partitions: dict[str, list[int]], version: int = 0) -> bytes:
    writer = Writer().i16(version)
    _write_partitions(writer, partitions)
    return writer.i32(-1).done()


def _read_partitions(reader: Reader) -> dict[str, list[int]]:
    return dict(reader.array(lambda: (reader.string(), reader.array(reader.i32))))


def _write_partitions(writer: Writer, partitions: dict[str, list[int]]) -> None:
    writer.i32(len(partitions))
    for topic, indexes in sorted(partitions.items()):
        writer.string(topic).i32(len(indexes))
        for index in sorted(indexes):
            writer.i32(index)
