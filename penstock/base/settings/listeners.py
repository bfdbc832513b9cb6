"""Listeners as settings describe them: `NAME://host:port` and which security protocol each name stands for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["Listener", "inter_broker_name", "parse_listeners", "protocol_map"]

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_LISTENER = r"(?P<name>[^:/]+)://(?P<host>\[[^\]]*\]|[^:\[\]]*):(?P<port>-?\d+)"


class Listener(NamedTuple):
    name: str  # upper case, as Kafka treats names
    host: str  # empty: all interfaces
    port: int  # 0: a free one
    protocol: str

    @property
    def tls(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def sasl(self) -> bool:
        return self.protocol.startswith("SASL_")


def protocol_map(text: str) -> dict[str, str]:
    """`INTERNAL:SSL,…` as a table; raises ValueError with what is wrong."""
    found = {}
    for entry in (e.strip() for e in text.split(",") if e.strip()):
        name, separator, protocol = entry.partition(":")
        if not separator or protocol.strip().upper() not in PROTOCOLS:
            raise ValueError(f"{entry!r} is not NAME:PROTOCOL with one of {', '.join(PROTOCOLS)}")
        found[name.strip().upper()] = protocol.strip().upper()
    return found


def inter_broker_name(listeners: list[Listener], protocol: str) -> str:
    """Which listener brokers use when only a protocol is named; with a single listener it is that one."""
    found = [listener.name for listener in listeners if listener.protocol == protocol]
    if protocol in found or (not found and len(listeners) != 1):
        return protocol
    return found[0] if found else listeners[0].name


def parse_listeners(
    entries: tuple[str, ...], protocols: Mapping[str, str], distinct_ports: bool = True
) -> list[Listener]:
    """The listeners of a list setting; raises ValueError with what is wrong."""
    parsed: list[Listener] = []
    for entry in entries:
        match = re.fullmatch(_LISTENER, entry)
        if match is None:
            raise ValueError(f"{entry!r} is not NAME://host:port")
        name, port = match["name"].upper(), int(match["port"])
        if not 0 <= port <= 65535:
            raise ValueError(f"{entry!r} has a port outside of 0 to 65535")
        if name not in protocols:
            raise ValueError(f"no security protocol is known for {name}: add it to listener.security.protocol.map")
        if any(other.name == name for other in parsed):
            raise ValueError(f"each listener must have a different name, and {name} stands there twice")
        parsed.append(Listener(name, match["host"].strip("[]"), port, protocols[name]))
    ports: dict[tuple[int, bool], Any] = {}
    for listener in parsed:
        # Two listeners may share a port only as a pair of an IPv4 and an IPv6 address.
        key = (listener.port, ":" in listener.host)
        if distinct_ports and listener.port and key in ports:
            raise ValueError(f"each listener must have a different port, and {listener.port} stands there twice")
        ports[key] = listener
    return parsed
