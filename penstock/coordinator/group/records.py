"""Group records of `__consumer_offsets` (types 2 to 8 and 16), byte for byte as Kafka writes them.

A key is its record type (int16) and fields in the old encoding; a value is its version (int16) and fields. Classic
groups are written as version 3; everything of KIP-848 is version 0 and flexible. Types not listed here are skipped by
readers: they belong to share and streams groups.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from uuid import UUID

from penstock.coordinator.shard_log import Record
from penstock.coordinator.wire import MalformedRecord, Reader, Writer

__all__ = [
    "Assignment",
    "ClassicProtocols",
    "CurrentAssignmentValue",
    "GroupMetadataValue",
    "MemberMetadataValue",
    "RecordType",
    "RegexValue",
    "StoredMember",
]

Assignment = dict[UUID, set[int]]
"""Partitions by topic id."""


class RecordType(IntEnum):
    LEGACY_OFFSET_COMMIT = 0
    OFFSET_COMMIT = 1
    GROUP_METADATA = 2
    CONSUMER_GROUP_METADATA = 3
    CONSUMER_GROUP_PARTITION_METADATA = 4
    CONSUMER_GROUP_MEMBER_METADATA = 5
    CONSUMER_GROUP_TARGET_METADATA = 6
    CONSUMER_GROUP_TARGET_MEMBER = 7
    CONSUMER_GROUP_CURRENT_MEMBER = 8
    CONSUMER_GROUP_REGULAR_EXPRESSION = 16


@dataclass(slots=True)
class StoredMember:
    """A member of a classic group, as stored."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(slots=True)
class GroupMetadataValue:
    """A classic group at the start of a generation."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    current_state_timestamp_ms: int = -1
    members: list[StoredMember] = field(default_factory=list)


@dataclass(slots=True)
class ClassicProtocols:
    """What a member that speaks the classic protocol inside a consumer group has offered."""

    session_timeout_ms: int
    protocols: list[tuple[str, bytes]]


@dataclass(slots=True)
class MemberMetadataValue:
    """Subscription of a KIP-848 member."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]
    subscribed_topic_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic: ClassicProtocols | None = None


@dataclass(slots=True)
class CurrentAssignmentValue:
    """What a KIP-848 member holds now, and at which epoch."""

    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned: Assignment
    pending_revocation: Assignment


@dataclass(slots=True)
class RegexValue:
    topics: list[str]
    version: int
    timestamp_ms: int


def group_key(kind: RecordType, group: str, second: str | None = None) -> bytes:
    writer = Writer().i16(kind).string(group)
    if second is not None:
        writer.string(second)
    return writer.done()


def decode_group_key(key: bytes, kind: int) -> tuple[str, str]:
    """(group, member id or regular expression or "")"""
    reader = Reader(key, 2)
    group = reader.string()
    two_parts = kind in _TWO_PART_KEYS
    return group, reader.string() if two_parts else ""


_TWO_PART_KEYS = frozenset(
    (
        RecordType.CONSUMER_GROUP_MEMBER_METADATA,
        RecordType.CONSUMER_GROUP_TARGET_MEMBER,
        RecordType.CONSUMER_GROUP_CURRENT_MEMBER,
        RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION,
    )
)


def tombstone(kind: RecordType, group: str, second: str | None = None) -> Record:
    return Record(group_key(kind, group, second), None)


# Classic ---------------------------------------------------------------------------------------------------------


def encode_group_metadata(group: str, value: GroupMetadataValue) -> Record:
    writer = Writer().i16(3).string(value.protocol_type).i32(value.generation)
    writer.string(value.protocol).string(value.leader).i64(value.current_state_timestamp_ms).i32(len(value.members))
    for member in value.members:
        writer.string(member.member_id).string(member.group_instance_id)
        writer.string(member.client_id).string(member.client_host)
        writer.i32(member.rebalance_timeout_ms).i32(member.session_timeout_ms)
        writer.blob(member.subscription).blob(member.assignment)
    return Record(group_key(RecordType.GROUP_METADATA, group), writer.done())


def decode_group_metadata(data: bytes) -> GroupMetadataValue:
    reader = Reader(data)
    version = reader.i16()
    if not 0 <= version <= 4:
        raise MalformedRecord(f"version {version} of group metadata is not known")
    flexible = version >= 4
    text = reader.compact_string if flexible else reader.string
    maybe_text = reader.compact_nullable_string if flexible else reader.nullable_string

    def content() -> bytes:
        return (reader.compact_nullable_bytes() or b"") if flexible else reader.blob()

    def member() -> StoredMember:
        stored = StoredMember(
            member_id=text(),
            group_instance_id=maybe_text() if version >= 3 else None,
            client_id=text(),
            client_host=text(),
            rebalance_timeout_ms=reader.i32() if version >= 1 else -1,
            session_timeout_ms=reader.i32(),
            subscription=content(),
            assignment=content(),
        )
        if version == 0:
            stored.rebalance_timeout_ms = stored.session_timeout_ms
        if flexible:
            reader.tags()
        return stored

    value = GroupMetadataValue(text(), reader.i32(), maybe_text(), maybe_text())
    value.current_state_timestamp_ms = reader.i64() if version >= 2 else -1
    value.members = reader.compact_array(member) if flexible else reader.array(member)
    return value


# KIP-848 ---------------------------------------------------------------------------------------------------------


def encode_group_epoch(group: str, epoch: int, metadata_hash: int) -> Record:
    tags = {0: Writer().i64(metadata_hash).done()} if metadata_hash else {}
    value = Writer().i16(0).i32(epoch).tags(tags).done()
    return Record(group_key(RecordType.CONSUMER_GROUP_METADATA, group), value)


def decode_group_epoch(data: bytes) -> tuple[int, int]:
    """(group epoch, metadata hash)"""
    reader = _flexible(data)
    epoch = reader.i32()
    tags = reader.tags()
    return epoch, Reader(tags[0]).i64() if 0 in tags else 0


def encode_member_metadata(group: str, member_id: str, value: MemberMetadataValue) -> Record:
    writer = Writer().i16(0).compact_string(value.instance_id).compact_string(value.rack_id)
    writer.compact_string(value.client_id).compact_string(value.client_host)
    names = sorted(value.subscribed_topic_names)
    writer.uvarint(len(names) + 1)
    for name in names:
        writer.compact_string(name)
    writer.compact_string(value.subscribed_topic_regex).i32(value.rebalance_timeout_ms)
    writer.compact_string(value.server_assignor)
    tags: dict[int, bytes] = {}
    if value.classic is not None:
        nested = Writer().i8(1).i32(value.classic.session_timeout_ms).uvarint(len(value.classic.protocols) + 1)
        for name, metadata in value.classic.protocols:
            nested.compact_string(name).compact_bytes(metadata).tags()
        tags[0] = nested.tags().done()
    key = group_key(RecordType.CONSUMER_GROUP_MEMBER_METADATA, group, member_id)
    return Record(key, writer.tags(tags).done())


def decode_member_metadata(data: bytes) -> MemberMetadataValue:
    reader = _flexible(data)
    value = MemberMetadataValue(
        instance_id=reader.compact_nullable_string(),
        rack_id=reader.compact_nullable_string(),
        client_id=reader.compact_string(),
        client_host=reader.compact_string(),
        subscribed_topic_names=reader.compact_array(reader.compact_string),
        subscribed_topic_regex=reader.compact_nullable_string(),
        rebalance_timeout_ms=reader.i32(),
        server_assignor=reader.compact_nullable_string(),
    )
    tags = reader.tags()
    if 0 in tags:
        value.classic = _decode_classic_protocols(tags[0])
    return value


def _decode_classic_protocols(data: bytes) -> ClassicProtocols | None:
    reader = Reader(data)
    if reader.i8() < 0:
        return None

    def protocol() -> tuple[str, bytes]:
        offered = reader.compact_string(), reader.compact_nullable_bytes() or b""
        reader.tags()
        return offered

    return ClassicProtocols(reader.i32(), reader.compact_array(protocol))


def encode_target_epoch(group: str, epoch: int) -> Record:
    key = group_key(RecordType.CONSUMER_GROUP_TARGET_METADATA, group)
    return Record(key, Writer().i16(0).i32(epoch).tags().done())


def decode_target_epoch(data: bytes) -> int:
    return _flexible(data).i32()


def encode_target_member(group: str, member_id: str, assignment: Assignment) -> Record:
    writer = Writer().i16(0)
    _write_assignment(writer, assignment)
    return Record(group_key(RecordType.CONSUMER_GROUP_TARGET_MEMBER, group, member_id), writer.tags().done())


def decode_target_member(data: bytes) -> Assignment:
    return _read_assignment(_flexible(data))


def encode_current_assignment(group: str, member_id: str, value: CurrentAssignmentValue) -> Record:
    writer = Writer().i16(0).i32(value.member_epoch).i32(value.previous_member_epoch).i8(value.state)
    _write_assignment(writer, value.assigned)
    _write_assignment(writer, value.pending_revocation)
    return Record(group_key(RecordType.CONSUMER_GROUP_CURRENT_MEMBER, group, member_id), writer.tags().done())


def decode_current_assignment(data: bytes) -> CurrentAssignmentValue:
    reader = _flexible(data)
    return CurrentAssignmentValue(
        member_epoch=reader.i32(),
        previous_member_epoch=reader.i32(),
        state=reader.i8(),
        assigned=_read_assignment(reader),
        pending_revocation=_read_assignment(reader),
    )


def encode_regex(group: str, regex: str, value: RegexValue) -> Record:
    writer = Writer().i16(0).uvarint(len(value.topics) + 1)
    for topic in sorted(value.topics):
        writer.compact_string(topic)
    writer.i64(value.version).i64(value.timestamp_ms).tags()
    return Record(group_key(RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION, group, regex), writer.done())


def decode_regex(data: bytes) -> RegexValue:
    reader = _flexible(data)
    return RegexValue(reader.compact_array(reader.compact_string), reader.i64(), reader.i64())


def _flexible(data: bytes) -> Reader:
    reader = Reader(data)
    version = reader.i16()
    if version != 0:
        raise MalformedRecord(f"version {version} is not known")
    return reader


def _write_assignment(writer: Writer, assignment: Assignment) -> None:
    writer.uvarint(len(assignment) + 1)
    for topic_id in sorted(assignment):
        writer.uuid(topic_id).uvarint(len(assignment[topic_id]) + 1)
        for partition in sorted(assignment[topic_id]):
            writer.i32(partition)
        writer.tags()


def _read_assignment(reader: Reader) -> Assignment:
    def topic() -> tuple[UUID, set[int]]:
        topic_id = reader.uuid()
        partitions = set(reader.compact_array(reader.i32))
        reader.tags()
        return topic_id, partitions

    return dict(reader.compact_array(topic))
