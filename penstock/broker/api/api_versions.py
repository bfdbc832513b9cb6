"""ApiVersions (key 18), versions 0–4: what this broker speaks, and the features that clients turn on by it.

An unknown version is answered in version 0 with the error *and* the list, so that the client can ask again (KIP-511).
v3: client software, features · v4: features whose lowest level is 0 are shown too (older clients cannot read them).
"""

from __future__ import annotations

import re
from struct import Struct
from typing import TYPE_CHECKING, Any

from penstock.broker.api.spec import ApiSpec
from penstock.broker.network.wire import (
    INT16,
    INT32,
    INT64,
    NO_TAGS,
    MalformedFrame,
    compact_string,
    read_varint,
    skip_tagged_fields,
    varint,
)
from penstock.broker.network.wire import begin_frame as begin
from penstock.broker.network.wire import end_frame as end_of
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.dispatch import Dispatcher
    from penstock.broker.network.connection import Connection
    from penstock.broker.routes import Route

API = ApiSpec(18, "ApiVersions", 0, 4)

_KEY = Struct(">hhh").pack
_SOFTWARE = re.compile(rb"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_CONSUMER_GROUP_HEARTBEAT, _END_TXN = 68, 26


def features(broker: Broker) -> dict[str, tuple[int, int, int]]:
    """Feature → (lowest level, highest level, level in force), only for what is implemented."""
    served = broker.registry.apis
    found: dict[str, tuple[int, int, int]] = {}
    if _CONSUMER_GROUP_HEARTBEAT in served:
        found["group.version"] = (0, 1, 1)
    if _END_TXN in served:
        found["transaction.version"] = (0, 2, 2)
    return found


def encode_body(broker: Broker, version: int, error: int) -> bytearray:
    flexible = version >= 3
    out = bytearray(INT16.pack(error))
    apis = broker.registry.advertised(broker.settings)
    out += varint(len(apis) + 1) if flexible else INT32.pack(len(apis))
    for api in apis:
        out += _KEY(*api)
        if flexible:
            out += NO_TAGS
    if version >= 1:
        out += INT32.pack(0)
    if flexible:
        out += _feature_tags(broker, version)
    return out


def _feature_tags(broker: Broker, version: int) -> bytes:
    known = features(broker)
    supported = {name: levels for name, levels in known.items() if version >= 4 or levels[0] > 0}
    tags: list[tuple[int, bytes]] = []
    if supported:
        tags.append((0, _feature_list([(name, low, high) for name, (low, high, _) in supported.items()])))
    tags.append((1, INT64.pack(0)))
    if known:
        tags.append((2, _feature_list([(name, level, level) for name, (_, _, level) in known.items()])))
    return varint(len(tags)) + b"".join(varint(tag) + varint(len(data)) + data for tag, data in tags)


def _feature_list(rows: list[tuple[str, int, int]]) -> bytes:
    # Both lists have (name, int16, int16): supported is (min, max), finalized is (max level, min level).
    return varint(len(rows) + 1) + b"".join(
        compact_string(name.encode()) + INT16.pack(first) + INT16.pack(second) + NO_TAGS for name, first, second in rows
    )


def unsupported_version_body(broker: Broker) -> bytearray:
    return encode_body(broker, 0, int(ErrorCode.UNSUPPORTED_VERSION))


def _software_is_valid(buffer: Any, position: int, end: int) -> bool:
    is_valid = True
    for _ in range(2):  # name, version
        if position >= end:
            raise MalformedFrame("client software is missing")
        size, position = read_varint(buffer, position)
        if position + max(size - 1, 0) > end:
            raise MalformedFrame("client software runs over the frame")
        is_valid = is_valid and _SOFTWARE.fullmatch(bytes(buffer[position : position + size - 1])) is not None
        position += max(size - 1, 0)
    skip_tagged_fields(buffer, position, end)
    return is_valid


def hot_handler(dispatcher: Dispatcher, route: Route) -> Any:
    broker = dispatcher.broker
    bodies: dict[tuple[int, int], bytearray] = {}

    def handle_frame(connection: Connection, version: int, correlation_id: int, position: int, end: int) -> None:
        error = 0
        if version >= 3 and not _software_is_valid(connection.buffer, position, end):
            error = int(ErrorCode.INVALID_REQUEST)
            route.stats.error(error)
        key = (version, error)
        if key not in bodies:
            bodies[key] = encode_body(broker, version, error)
        out = begin(correlation_id, False)
        out += bodies[key]
        dispatcher.new_slot(connection, route).parts = (end_of(out),)
        connection.mark_dirty()

    return handle_frame
