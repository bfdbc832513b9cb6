"""Every message of every version survives a round trip, agrees with kio byte for byte, and refuses nonsense."""

from __future__ import annotations

import io
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.index import api_key_map
from kio.serial import entity_reader, entity_writer

from penstock.protocol import kio_schema, messages
from penstock.protocol.messages import ApiMessages, MalformedMessage

ALL_APIS = sorted(api_key_map.items())


@pytest.mark.parametrize(("key", "name"), ALL_APIS)
def test_every_version_of_every_api_survives_a_round_trip(key: int, name: str) -> None:
    api = messages.api(key).load_all_versions()
    for version in range(api.min_version, api.max_version + 1):
        request, response = api.Request(), api.Response()
        data = messages.encode_request(key, version, request)
        assert messages.encode_request(key, version, messages.decode_request(key, version, data)) == data
        data = messages.encode_response(key, version, response)
        assert messages.encode_response(key, version, messages.decode_response(key, version, data)) == data


@pytest.mark.parametrize("version", range(2, 8))
def test_a_filled_request_has_the_bytes_that_kio_writes(version: int) -> None:
    topics = messages.api("create_topics")
    request = topics.Request(
        topics=[
            topics.CreatableTopic(
                name="orders",
                num_partitions=3,
                replication_factor=1,
                configs=[topics.CreatableTopicConfig(name="retention.ms", value="1000")],
            )
        ],
        timeout_ms=1500,
        validate_only=True,
    )
    data = bytes(messages.encode_request(topics.key, version, request))

    schema = load_request_schema(topics.key, version)
    by_kio, length = entity_reader(schema)(data, 0)
    rewritten = io.BytesIO()
    entity_writer(schema)(rewritten, by_kio)

    assert length == len(data)
    assert by_kio.topics[0].name == "orders"
    assert rewritten.getvalue() == data


def test_fields_that_an_old_version_lacks_keep_their_defaults() -> None:
    metadata = messages.api("metadata")
    old = messages.decode_request(
        metadata.key, 1, messages.encode_request(metadata.key, 1, metadata.Request(topics=None))
    )
    assert old.topics is None
    assert old.allow_auto_topic_creation is True


def test_a_misspelt_field_is_refused_with_the_known_names() -> None:
    with pytest.raises(TypeError, match="no field 'topicz'"):
        messages.api("metadata").Request(topicz=[])


@pytest.mark.parametrize("cut", range(40))
def test_a_truncated_request_is_malformed_not_a_crash(cut: int) -> None:
    topics = messages.api("create_topics")
    whole = messages.encode_request(
        topics.key, 7, topics.Request(topics=[topics.CreatableTopic(name="a-topic-name", num_partitions=1)])
    )
    with pytest.raises(MalformedMessage):
        messages.decode_request(topics.key, 7, whole[: min(cut, len(whole) - 1)])


@pytest.mark.parametrize("count", [-2, 2**31 - 1, 1000])
def test_an_array_that_claims_more_than_the_message_holds_is_refused(count: int) -> None:
    metadata = messages.api("metadata")
    with pytest.raises(MalformedMessage):
        messages.decode_request(metadata.key, 1, count.to_bytes(4, "big", signed=True))


def test_an_api_has_one_set_of_classes_by_name_and_by_key() -> None:
    assert messages.api("metadata") is messages.api(3)
    old = messages.api("metadata").Request(topics=[])
    assert messages.encode_request(3, 9, old)  # a version with a field that the newest lacks


@pytest.mark.parametrize(("key", "name"), ALL_APIS)
def test_every_class_knows_the_fields_of_all_versions_before_any_of_them_came(key: int, name: str) -> None:
    """A fresh process whose first request is of the newest version answers as one that has seen the oldest."""
    fresh = ApiMessages(name)
    expected: dict[tuple[str, str, str], Any] = {}

    def collect(direction: str, struct: kio_schema.StructSchema) -> None:
        for field in struct.fields:
            expected.setdefault((direction, struct.name, field.name), field.default)
            if field.struct is not None:
                collect(direction, field.struct)

    for direction in ("request", "response"):
        for version in range(fresh.max_version, fresh.min_version - 1, -1):
            collect(direction, kio_schema.message_schema(name, version, direction))
    for (direction, struct, field), default in expected.items():
        known = (fresh.request_struct if direction == "request" else fresh.response_struct)(struct).FIELDS
        if isinstance(default, kio_schema.StructSchema):
            assert field in known
        else:
            assert known[field] == default, f"{direction} {struct}.{field}"
