"""What an API module says about itself, and what a handler is told about the request that it answers.

Each module of this folder that serves an API defines

    API = ApiSpec(19, "CreateTopics", 2, 7)

    async def handle(broker: Broker, ctx: RequestContext, request: CreateTopics.Request) -> CreateTopics.Response: ...

`request` is the decoded message of `penstock.protocol.messages` (one class whatever the version; its type, for mypy
only, comes from `penstock.protocol.shapes`); the answer is
`messages.api("create_topics").Response(...)`, or None where the client expects no answer. Handlers await freely:
the connection keeps answers in order and handles no later request of its client before this one is answered.
Modules import cheaply (no kio at import time); what costs is imported inside `handle`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.security.principal import ANONYMOUS, Principal

if TYPE_CHECKING:
    from penstock.broker.network.connection import Connection

# First version with compact types and tagged fields, which the request header needs before any body is looked at.
# 99: the API never became flexible. Kept here so that a start does not have to load kio's schemas.
# fmt: off
FIRST_FLEXIBLE_VERSION = dict.fromkeys(range(52, 100), 0) | {
    0: 9, 1: 12, 2: 6, 3: 9, 8: 8, 9: 6, 10: 3, 11: 6, 12: 4, 13: 4, 14: 4, 15: 5, 16: 3, 17: 99, 18: 3, 19: 5, 20: 4,
    21: 2, 22: 2, 23: 4, 24: 3, 25: 3, 26: 3, 27: 1, 28: 3, 29: 2, 30: 2, 31: 2, 32: 4, 33: 2, 34: 2, 35: 2, 36: 2,
    37: 2, 38: 2, 39: 2, 40: 2, 41: 2, 42: 2, 43: 2, 44: 1, 45: 0, 46: 0, 47: 99, 48: 1, 49: 1, 50: 0, 51: 0,
}
# fmt: on


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


@dataclass(frozen=True, slots=True)
class ApiSpec:
    """One Kafka API as this broker serves it. Versions outside min..max are refused as Kafka refuses them."""

    key: int
    name: str
    min_version: int
    max_version: int
    kio_name: str = ""
    inter_broker_only: bool = False  # not advertised; refused on every listener but the inter-broker one
    advertised_min_version: int | None = None  # where clients' version checks need a lower bound than we accept
    first_flexible_version: int = -1
    limited_by: tuple[str, int] | None = None  # (a boolean setting, the highest version while it is off)
    takes_long_lists: bool = False  # its handler goes through them in slices; for others there is a bound

    def __post_init__(self) -> None:
        if not self.kio_name:
            object.__setattr__(self, "kio_name", _snake_case(self.name))
        if self.first_flexible_version < 0:
            object.__setattr__(self, "first_flexible_version", FIRST_FLEXIBLE_VERSION.get(self.key, 0))

    def highest_version(self, settings: Any) -> int:
        """The highest version that a broker of these settings serves."""
        if self.limited_by is None or settings[self.limited_by[0]]:
            return self.max_version
        return self.limited_by[1]

    @property
    def shown_min_version(self) -> int:
        return self.min_version if self.advertised_min_version is None else self.advertised_min_version


@dataclass(slots=True)
class RequestContext:
    """Who asks, over which listener, in which version."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str
    client_host: str
    listener_name: str
    principal: Principal = ANONYMOUS
    broker_id: int = -1  # the broker that this connection is proven to be; cluster actions are its by right
    connection: Connection | None = field(default=None, repr=False)
    throttle_time_ms: int = 0


class RequestRefused(Exception):
    """Raised by a handler to answer the whole request with one error code, as Kafka's getErrorResponse does.

    The answer is the API's default response with its top-level `error_code` (and `error_message`) set, or what the
    module's own `error_response(request, code, message)` builds; an API with neither closes the connection.
    """

    def __init__(self, code: int, message: str | None = None) -> None:
        super().__init__(message or f"error code {int(code)}")
        self.code = int(code)
        self.message = message


def default_error_response(spec: ApiSpec, code: int, message: str | None) -> Any:
    """The response with only its top-level error set, or None if the API has no such field."""
    from penstock.protocol import messages

    response = messages.api(spec.kio_name).Response()
    if not hasattr(response, "error_code"):
        return None
    response.error_code = code
    if hasattr(response, "error_message"):
        response.error_message = message
    return response
