"""Kafka messages by API and version: one class per message, whatever version is on the wire.

    topics = messages.api("create_topics")
    request = topics.Request(topics=[topics.CreatableTopic(name="orders", num_partitions=3, replication_factor=1)])
    data = messages.encode_request(topics.key, 7, request)

Durations and times are integers in milliseconds (`throttle_time_ms`), error codes are integers, arrays are lists,
a missing uuid is the zero uuid. A field that a version lacks keeps its default when decoded and is dropped when
encoded.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import TYPE_CHECKING, Any

from penstock.protocol import kio_schema
from penstock.protocol.former_fields import FORMER_FIELDS
from penstock.protocol.message_compiler import Decoder, Encoder, MalformedMessage, Struct, StructCompiler

__all__ = [
    "MalformedMessage",
    "Struct",
    "api",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
    "is_flexible",
]


class ApiMessages:
    """The message classes of one API: `.Request`, `.Response` and every nested struct by its Kafka name.

    Where request and response both have a struct of one name, `.request_struct(name)` and `.response_struct(name)`
    tell them apart; the plain attribute gives the response's, which is what a broker builds.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.key = kio_schema.api_key(name)
        self.min_version, self.max_version = kio_schema.versions(name)
        self._classes: dict[str, dict[str, type[Struct]]] = {"request": {}, "response": {}}
        self._roots: dict[str, type[Struct]] = {}
        self._complete = False
        for direction in ("request", "response"):
            schema = kio_schema.message_schema(name, self.max_version, direction)
            compiler = StructCompiler(self._classes[direction])
            self._roots[direction] = compiler.message_class(schema)
            for struct_name, fields in FORMER_FIELDS.get(name, {}).get(direction, {}).items():
                compiler.add_fields(struct_name, fields)

    @property
    def Request(self) -> Any:  # noqa: N802 - reads as the class that it returns
        return self._roots["request"]

    @property
    def Response(self) -> Any:  # noqa: N802
        return self._roots["response"]

    def request_struct(self, name: str) -> Any:
        return self._struct("request", name)

    def response_struct(self, name: str) -> Any:
        return self._struct("response", name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        for direction in ("response", "request"):
            if name in self._classes[direction]:
                return self._classes[direction][name]
        self.load_all_versions()
        for direction in ("response", "request"):
            if name in self._classes[direction]:
                return self._classes[direction][name]
        raise AttributeError(f"{self.name} has no struct {name!r}")

    def _struct(self, direction: str, name: str) -> Any:
        if name not in self._classes[direction]:
            self.load_all_versions()
        return self._classes[direction][name]

    def load_all_versions(self) -> ApiMessages:
        """Make the classes know the fields that only older versions have (slow: a module import per version)."""
        if not self._complete:
            self._complete = True
            for version in range(self.min_version, self.max_version + 1):
                for direction in ("request", "response"):
                    schema = kio_schema.message_schema(self.name, version, direction)
                    StructCompiler(self._classes[direction]).message_class(schema)
        return self

    def compiler(self, direction: str) -> StructCompiler:
        return StructCompiler(self._classes[direction])


if TYPE_CHECKING:
    from penstock.protocol.shapes import api  # the same function, which also knows what each name gives
else:

    def api(name_or_key: str | int) -> ApiMessages:
        """The messages of an API, by its number or its name in snake case; always the same object for one API."""
        return _api_by_name(kio_schema.api_name(name_or_key) if isinstance(name_or_key, int) else name_or_key)


@cache
def _api_by_name(name: str) -> ApiMessages:
    return ApiMessages(name)


@cache
def is_flexible(api_key: int, version: int) -> bool:
    return kio_schema.message_schema(kio_schema.api_name(api_key), version, "request").flexible


@cache
def _decoder(api_key: int, version: int, direction: str) -> Decoder:
    messages = api(api_key)
    return messages.compiler(direction).decoder(kio_schema.message_schema(messages.name, version, direction))


@cache
def _encoder(api_key: int, version: int, direction: str) -> Encoder:
    messages = api(api_key)
    return messages.compiler(direction).encoder(kio_schema.message_schema(messages.name, version, direction))


def _decode(api_key: int, version: int, direction: str, data: Any, position: int) -> Any:
    try:
        message, end = _decoder(api_key, version, direction)(data, position)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedMessage(f"{kio_schema.api_name(api_key)} v{version} {direction}: {error}") from error
    if end != len(data) and direction == "response":  # a request may carry more than we know, as with Kafka
        raise MalformedMessage(f"{len(data) - end} bytes left after a {kio_schema.api_name(api_key)} v{version}")
    return message


def decode_request(api_key: int, version: int, data: Any, position: int = 0) -> Any:
    """The request whose body (behind the header) starts at `position` of `data`."""
    return _decode(api_key, version, "request", data, position)


def decode_response(api_key: int, version: int, data: Any, position: int = 0) -> Any:
    return _decode(api_key, version, "response", data, position)


def encode_request(api_key: int, version: int, message: Any) -> bytearray:
    out = bytearray()
    _encoder(api_key, version, "request")(out, message)
    return out


def encode_response(api_key: int, version: int, message: Any) -> bytearray:
    out = bytearray()
    _encoder(api_key, version, "response")(out, message)
    return out
