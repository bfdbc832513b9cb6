"""Messages of many elements: decoded and encoded in a thread, one at a time, so that the loop goes on meanwhile.

One thread bounds the memory too: however many clients send such requests, one of them is in pieces.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from penstock.broker.api.spec import RequestContext
    from penstock.broker.dispatch import Dispatcher
    from penstock.broker.network.connection import Connection
    from penstock.broker.routes import Route

Result = TypeVar("Result")

LARGE_REQUEST_BYTES = 32 * 1024
LARGE_RESPONSE_ELEMENTS = 500
MOST_ELEMENTS = 20_000  # of all lists in a request together, where its handler goes through them in one go


def is_large(response: Any) -> bool:
    """Whether an answer has many elements, as far as a look at its lists and the first one's lists tells."""
    for value in _lists(response):
        if len(value) > LARGE_RESPONSE_ELEMENTS:
            return True
        if value and len(value) * sum(len(inner) for inner in _lists(value[0])) > LARGE_RESPONSE_ELEMENTS:
            return True
    return False


def _lists(struct: Any) -> list[list[Any]]:
    return [value for value in getattr(struct, "__dict__", {}).values() if type(value) is list]


def count_elements(struct: Any, most: int) -> int:
    """Of all its lists and theirs; stops counting above `most`."""
    count = 0
    for value in _lists(struct):
        count += len(value)
        for inner in value:
            if count > most:
                return count
            if hasattr(inner, "__dict__"):
                count += count_elements(inner, most - count)
    return count


class LargeMessages:
    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="large-messages")

    def start(self, connection: Connection, route: Route, context: RequestContext, data: bytes) -> None:
        """Decode a request, then handle it; later ones of the connection wait."""
        connection.busy = True
        task = self._dispatcher.loop.create_task(self._decode(connection, route, context, data))
        self._dispatcher.tasks.add(task)
        task.add_done_callback(self._dispatcher.tasks.discard)

    async def _decode(self, connection: Connection, route: Route, context: RequestContext, data: bytes) -> None:
        from penstock.protocol.messages import MalformedMessage

        dispatcher = self._dispatcher
        try:
            request = await self.run(self._decode_bounded, route, context.api_version, data)
        except MalformedMessage as error:
            dispatcher.refuse_malformed(connection, error)
            return
        if not connection.closed:
            dispatcher.cold.run(connection, route, context, request)

    def _decode_bounded(self, route: Route, version: int, data: bytes) -> Any:
        from penstock.protocol.messages import MalformedMessage

        request = self._dispatcher.cold.decode(route, version, data)
        spec = route.spec
        is_bounded = not (spec.takes_long_lists or spec.inter_broker_only)
        if is_bounded and count_elements(request, MOST_ELEMENTS) > MOST_ELEMENTS:
            del request  # here: the error takes all that this function holds to the loop
            raise MalformedMessage(f"{spec.name} with more than {MOST_ELEMENTS} elements")
        return request

    async def run(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Something else of this kind."""
        return await self._dispatcher.loop.run_in_executor(self._thread, function, *arguments)

    async def encode(self, route: Route, context: RequestContext, response: Any) -> list[Any]:
        return await self.run(self._dispatcher.cold.encode, route, context, response)

    def free(self, things: list[Any]) -> None:
        """Hundreds of thousands of objects go where they came from, too. Nobody else may hold them."""
        self._thread.submit(things.clear)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
