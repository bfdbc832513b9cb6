"""What is known of one API: its versions, who handles it, how it is read and written; the frame around an answer."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from penstock.broker.api.spec import ApiSpec
from penstock.broker.network.connection import Connection
from penstock.broker.network.wire import FRAME
from penstock.broker.stats import ApiStats

API_VERSIONS = 18
CARRY_BYTES = frozenset({11, 14, 36, 56, *range(10_000, 10_100)})  # these hold bytes of others and few elements

HotHandler = Callable[[Connection, int, int, int, int], None]
"""(connection, version, correlation id, position of the body in its buffer, end of the frame)."""

ContentsMatter = Callable[[Connection, int, int, int, int], bool]
"""(connection, version, position of the body, bytes of the frame that are here, its end)."""


class Route:
    __slots__ = (
        "contents_matter",
        "decode",
        "encode",
        "first_flexible",
        "handle",
        "hot",
        "max_version",
        "metered",
        "min_version",
        "module",
        "plain",
        "spec",
        "stats",
    )

    def __init__(self, spec: ApiSpec, module: ModuleType, stats: ApiStats) -> None:
        self.spec = spec
        self.module = module
        self.stats = stats
        self.min_version = spec.min_version
        self.max_version = spec.max_version
        self.first_flexible = spec.first_flexible_version
        self.handle: Any = getattr(module, "handle", None)
        self.hot: HotHandler | None = None
        self.plain: HotHandler | None = None  # what `hot` is while no quota is set
        self.metered: HotHandler | None = None  # and while one is; its module may set its own
        self.contents_matter: ContentsMatter | None = None  # what tells it of the beginning of a large frame
        # Messages of our own (keys from 10000) are not among kio's: their modules bring their codec.
        self.decode: Any = getattr(module, "decode_request", None)
        self.encode: Any = getattr(module, "encode_response", None)


def frame(correlation_id: int, flexible: bool, body: bytes | bytearray) -> list[Any]:
    """A whole answer: size, header of version 0 or 1, body."""
    if flexible:
        return [FRAME.pack(len(body) + 5, correlation_id) + b"\x00" + body]
    return [FRAME.pack(len(body) + 4, correlation_id) + body]
