"""Requests off the hot path: decoded as a whole, handled by a coroutine, one at a time per connection.

Whatever a handler raises ends here: as the error code that its API can carry, or as the end of the connection.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from penstock.broker.api.spec import RequestContext, RequestRefused, default_error_response
from penstock.broker.coordinators import NEED_COORDINATORS
from penstock.broker.network.connection import Connection, Slot
from penstock.broker.network.large_messages import LARGE_REQUEST_BYTES, is_large
from penstock.broker.network.wire import LARGEST_REQUEST_BYTES, MalformedFrame
from penstock.broker.routes import API_VERSIONS, CARRY_BYTES, Route, frame
from penstock.protocol.message_compiler import MalformedMessage
from penstock.store.interface import StoreError

if TYPE_CHECKING:
    from penstock.broker.dispatch import Dispatcher

logger = logging.getLogger(__name__)

UNKNOWN_SERVER_ERROR = -1
KAFKA_STORAGE_ERROR = 56


class ColdRequests:
    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._broker = dispatcher.broker

    def context(self, connection: Connection, route: Route, version: int, correlation_id: int) -> RequestContext:
        return RequestContext(
            api_key=route.spec.key,
            api_version=version,
            correlation_id=correlation_id,
            client_id=self._dispatcher.client_id(connection),
            client_host=connection.client_host,
            listener_name=connection.listener.name,
            principal=connection.principal,
            broker_id=connection.broker_id,
            connection=connection,
        )

    def start(
        self, connection: Connection, route: Route, version: int, correlation_id: int, position: int, end: int
    ) -> None:
        from penstock.protocol import messages

        if route.spec.inter_broker_only and not self._dispatcher.may_speak_as_broker(connection, route):
            return
        data = bytes(connection.view[position:end])
        context = self.context(connection, route, version, correlation_id)
        if len(data) > LARGE_REQUEST_BYTES:
            if len(data) > LARGEST_REQUEST_BYTES and route.spec.key not in CARRY_BYTES:
                raise MalformedFrame(f"{route.spec.name} of {len(data)} bytes")
            self._dispatcher.large.start(connection, route, context, data)
            return
        try:
            request = self.decode(route, version, data)
        except messages.MalformedMessage as error:
            raise MalformedFrame(str(error)) from error
        self.run(connection, route, context, request)

    def decode(self, route: Route, version: int, data: bytes) -> Any:
        if route.decode is not None:
            return route.decode(version, data)
        from penstock.protocol import messages

        return messages.decode_request(route.spec.key, version, data)

    def run(self, connection: Connection, route: Route, context: RequestContext, request: Any) -> None:
        slot = self._dispatcher.new_slot(connection, route)
        connection.busy = True
        task = self._dispatcher.loop.create_task(self._answer(connection, slot, route, context, request))
        self._dispatcher.tasks.add(task)
        task.add_done_callback(self._dispatcher.tasks.discard)

    async def _answer(
        self, connection: Connection, slot: Slot, route: Route, context: RequestContext, request: Any
    ) -> None:
        try:
            if self._broker.quotas is None:
                response = await self._handle(route, context, request)
            else:
                response = await self._handle_metered(connection, route, context, request)
            if code := getattr(response, "error_code", 0):
                route.stats.error(code)
            if response is None:
                parts: Any = ()
            elif is_large(response):
                parts = await self._dispatcher.large.encode(route, context, response)
                things = [request, response]
                del request
                response = None
                self._dispatcher.large.free(things)
            else:
                parts = self.encode(route, context, response)
        except asyncio.CancelledError:
            connection.close()
            raise
        except MalformedMessage as error:
            logger.info("closing client=%s: %s", connection.client_host, error)
            connection.close()
            return
        except Exception:
            logger.exception("closing client=%s: %s failed", connection.client_host, route.spec.name)
            route.stats.error(UNKNOWN_SERVER_ERROR)
            self._dispatcher.stats.ran_into_bug(route.spec.name, "closed")
            connection.close()
            return
        connection.finish(slot, parts)
        if context.throttle_time_ms > 0:
            connection.mute(context.throttle_time_ms / 1000)

    async def _handle_metered(self, connection: Connection, route: Route, context: RequestContext, request: Any) -> Any:
        """The same where quotas are set: the time that it took counts, and the answer tells the pause."""
        from penstock.broker.quota_metering import Stopwatch

        watch = Stopwatch()
        response = await watch.run(self._handle(route, context, request))
        quotas = self._broker.quotas
        if quotas is not None and not route.spec.inter_broker_only:
            pause_ms = quotas.worked(connection, context.client_id, watch.seconds)
            context.throttle_time_ms = max(context.throttle_time_ms, pause_ms)
        if context.throttle_time_ms > 0 and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = context.throttle_time_ms
        return response

    async def _handle(self, route: Route, context: RequestContext, request: Any) -> Any:
        try:
            if context.api_key in NEED_COORDINATORS and not self._broker.coordinators.ready:
                await self._broker.coordinators.ensure()
            return await route.handle(self._broker, context, request)
        except RequestRefused as refused:
            code, message = refused.code, refused.message
        except StoreError as error:
            logger.warning("%s of client=%s: %s", route.spec.name, context.client_host, error)
            code, message = KAFKA_STORAGE_ERROR, f"The cluster's metadata cannot be read or written now: {error}"
        except MalformedMessage:
            raise
        except Exception:
            logger.exception("%s of client=%s failed", route.spec.name, context.client_host)
            self._dispatcher.stats.ran_into_bug(route.spec.name, "answered")
            code, message = UNKNOWN_SERVER_ERROR, None
        route.stats.error(code)
        own = getattr(route.module, "error_response", None)
        response = own(request, code, message) if own is not None else default_error_response(route.spec, code, message)
        if response is None:
            raise ConnectionAbortedError(f"{route.spec.name} has no answer that could carry error {code}")
        return response

    def encode(self, route: Route, context: RequestContext, response: Any) -> list[Any]:
        from penstock.protocol import messages

        version = context.api_version
        if route.encode is not None:
            body = route.encode(version, response)
        else:
            body = messages.encode_response(route.spec.key, version, response)
        # ApiVersions keeps the old header for ever: the client does not know our versions when it reads it (KIP-511).
        flexible = version >= route.first_flexible and route.spec.key != API_VERSIONS
        return frame(context.correlation_id, flexible, body)
