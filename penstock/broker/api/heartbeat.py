"""12 Heartbeat, v0–4: a classic member lives. Answered at once, with a codec of its own: thousands of members do it.

v3: instance ids · v4: flexible. REBALANCE_IN_PROGRESS tells the member to join again.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from penstock.broker.api.group_support import may_read_group
from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.broker.network.wire import INT16, INT32, UNREADABLE, MalformedFrame, read_varint, skip_tagged_fields
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.dispatch import Dispatcher
    from penstock.broker.network.connection import Connection
    from penstock.broker.routes import HotHandler, Route
    from penstock.protocol.shapes import Heartbeat

API = ApiSpec(12, "Heartbeat", 0, 4)

_V0 = Struct(">iih")  # size, correlation id, error
_V1 = Struct(">iiih")  # with throttle time
_V4 = Struct(">iibihb")  # with tags of header and body


def hot_handler(dispatcher: Dispatcher, route: Route) -> HotHandler:
    broker = dispatcher.broker

    def handle_frame(connection: Connection, version: int, correlation_id: int, position: int, end: int) -> None:
        if broker.authorizer is not None or broker.groups is None:
            dispatcher.cold.start(connection, route, version, correlation_id, position, end)
            return
        try:
            group, member, generation, instance = parse(bytes(connection.view[position:end]), version)
        except UNREADABLE as error:
            raise MalformedFrame(f"heartbeat v{version}: {error}") from error
        slot = dispatcher.new_slot(connection, route)
        slot.parts = [answer(correlation_id, version, broker.groups.heartbeat(group, member, generation, instance))]
        connection.mark_dirty()

    return handle_frame


def parse(data: bytes, version: int) -> tuple[str, str, int, str | None]:
    """(group, member id, generation, instance id)"""
    position = 0

    def text() -> str | None:
        nonlocal position
        if version >= 4:
            length, position = read_varint(data, position)
            length -= 1
        else:
            length = INT16.unpack_from(data, position)[0]
            position += 2
        if length < 0:
            return None
        position += length
        if position > len(data):
            raise IndexError("a string runs over the frame")
        return data[position - length : position].decode()

    group = text()
    generation = INT32.unpack_from(data, position)[0]
    position += 4
    member = text()
    instance = text() if version >= 3 else None
    if version >= 4:
        skip_tagged_fields(data, position, len(data))
    return group or "", member or "", generation, instance


def answer(correlation_id: int, version: int, error: ErrorCode) -> bytes:
    if version >= 4:
        return _V4.pack(12, correlation_id, 0, 0, error, 0)
    if version >= 1:
        return _V1.pack(10, correlation_id, 0, error)
    return _V0.pack(6, correlation_id, error)


async def handle(broker: Broker, ctx: RequestContext, request: Heartbeat.Request) -> Heartbeat.Response:
    """Where access is controlled: the slower way, which knows who asks."""
    from penstock.protocol import messages

    error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    if may_read_group(broker, ctx, request.group_id):
        error = broker.groups.heartbeat(
            request.group_id, request.member_id, request.generation_id, request.group_instance_id
        )
    return messages.api("heartbeat").Response(error_code=int(error))
