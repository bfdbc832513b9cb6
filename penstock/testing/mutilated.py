"""Requests that are cut short or have bytes behind their end: what a broker does with each, to compare two of them.

A frame whose size is right and whose body is not what its version says. A broker answers or closes the connection;
which of them is the question, not what it answers.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

from penstock.protocol import kio_schema, messages
from penstock.testing.probes.harness import Session
from penstock.testing.request_shapes import World, shapes

ANSWERED = "answered"
CLOSED = "closed"
SILENT = "no answer"

# Answered only after a while, or never: a whole one says nothing here, and a broken one must not reach its handler.
_WAITS = frozenset({"join_group", "sync_group"})
# A listener without SASL ends these whatever they say.
_LEFT_OUT = frozenset({"sasl_handshake", "sasl_authenticate"})
PATIENCE_SECONDS = 10.0
_CORRELATION = struct.pack(">i", 7)
# A whole request behind it, in the same packet: what is missing must not be taken from there.
_NEXT = struct.pack(">ihhih", 10, 18, 0, 8, -1)


def bodies(name: str, version: int, world: World, every: bool = False) -> Iterator[tuple[str, bytes]]:
    """(what was done to it, body): cut by one byte and more, down to nothing; with bytes behind its end."""
    key = kio_schema.api_key(name)
    for shape, request in shapes(name, version, world):
        if shape not in ("full", "bare") or (shape == "bare" and not every):
            continue
        whole = bytes(messages.encode_request(key, version, request))
        lengths = range(len(whole)) if every else {*range(len(whole))[-3:], len(whole) // 2, 0}
        for length in sorted(lengths, reverse=True):
            if length < len(whole):
                yield f"{shape} cut by {len(whole) - length}", whole[:length]
        if name not in _WAITS:
            for extra in (b"\0", b"\xff\xff\xff"):
                yield f"{shape} and {len(extra)} more", whole + extra


def ask(port: int, name: str, version: int, body: bytes) -> str:
    key = kio_schema.api_key(name)
    flexible = messages.is_flexible(key, version)
    frame = struct.pack(">hh", key, version) + _CORRELATION + b"\0\4cuts" + (b"\0" if flexible else b"") + body
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS) as connection:
        connection.sendall(struct.pack(">i", len(frame)) + frame + _NEXT)
        try:
            begin = connection.recv(8, socket.MSG_WAITALL)
            return ANSWERED if begin[4:] == _CORRELATION else CLOSED
        except ConnectionResetError:
            return CLOSED
        except TimeoutError:
            return SILENT


def outcomes(port: int, every: bool = False) -> dict[tuple[str, int, str], str]:
    """Everything that was done to each version of each API that the broker advertises, and what came of it. Not only
    some cuts of a request with everything in it but `every` one, and of a bare one."""
    session = Session(port, "mutilated")
    try:
        name = session.topic(2)
        world = World(name, session.topic_id(name))
        request = messages.api("api_versions").Request(client_software_name="x", client_software_version="1")
        served = session.call("api_versions", 3, request).api_keys
    finally:
        session.close()
    found = {}
    for one in served:
        try:
            api = kio_schema.api_name(one.api_key)
        except KeyError:
            continue  # newer than our schemas: nothing to compare
        if api in _LEFT_OUT:
            continue
        oldest, newest = kio_schema.versions(api)
        for version in range(max(one.min_version, oldest), min(one.max_version, newest) + 1):
            for label, body in bodies(api, version, world, every):
                found[(api, version, label)] = ask(port, api, version, body)
    return found
