"""Probes below the messages: frames, headers, versions and keys that no client should send."""

from __future__ import annotations

import struct
from typing import Any

from penstock.protocol import messages
from penstock.testing.probes.harness import Session, probe


def header(key: int, version: int, correlation: int = 7, client_id: bytes | None = b"probe") -> bytes:
    name = struct.pack(">h", -1) if client_id is None else struct.pack(">h", len(client_id)) + client_id
    return struct.pack(">hhi", key, version, correlation) + name


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


for _version in range(5):

    @probe(f"api versions v{_version}")
    def _api_versions(session: Session, version: int = _version) -> Any:
        request = messages.api("api_versions").Request(client_software_name="probe", client_software_version="1")
        answer = session.call("api_versions", version, request)
        return answer.error_code, len(answer.api_keys) > 30


@probe("api versions in a version to come")
def _api_versions_future(session: Session) -> Any:
    session.send_raw(framed(header(18, 99) + b"\0\6probe\2x\0"))
    answer = session.read_raw()
    error = struct.unpack_from(">h", answer, 4)[0]
    return struct.unpack_from(">i", answer)[0], error, struct.unpack_from(">i", answer, 6)[0] > 0


@probe("api versions with a nonsense software name")
def _software(session: Session) -> Any:
    request = messages.api("api_versions").Request(client_software_name="no spaces!", client_software_version="")
    return session.call("api_versions", 3, request).error_code


@probe("a client id of null")
def _null_client(session: Session) -> Any:
    session.send_raw(framed(header(3, 1, client_id=None) + struct.pack(">i", 0)))
    return struct.unpack_from(">i", session.read_raw())[0]


BAD_FRAMES = {
    "a negative size": struct.pack(">i", -1),
    "a huge size": struct.pack(">i", 2**31 - 1),
    "a size of zero": struct.pack(">i", 0),
    "half a header": framed(b"\0\3\0"),
    "an unknown api key": framed(header(999, 0)),
    "a negative api key": framed(header(-1, 0)),
    "produce in version 2": framed(header(0, 2) + b"\0" * 20),
    "produce in version 99": framed(header(0, 99) + b"\0" * 20),
    "metadata in version 99": framed(header(3, 99)),
    "fetch in version 3": framed(header(1, 3) + b"\0" * 20),
    "metadata with an array that is too long": framed(header(3, 1) + struct.pack(">i", 10_000)),
    "metadata with a negative array": framed(header(3, 1) + struct.pack(">i", -5)),
    "metadata with nothing behind the header": framed(header(3, 1)),
    "a client id longer than the frame": framed(struct.pack(">hhih", 3, 1, 7, 500) + b"x"),
    "text of another protocol": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a controller request": framed(header(62, 0) + b"\0" * 10),
}
for _label, _data in BAD_FRAMES.items():

    @probe(f"frame: {_label}")
    def _frame(session: Session, data: bytes = _data) -> Any:
        session.send_raw(data)
        session.read_raw()
        return "answered"


@probe("bytes behind a request that is complete")
def _trailing(session: Session) -> Any:
    session.send_raw(framed(header(3, 1) + struct.pack(">i", 0) + b"extra"))
    return struct.unpack_from(">i", session.read_raw())[0]


@probe("three requests in one packet are answered in order")
def _pipelined(session: Session) -> Any:
    session.send_raw(b"".join(framed(header(3, 1, correlation=n) + struct.pack(">i", 0)) for n in (11, 12, 13)))
    return [struct.unpack_from(">i", session.read_raw())[0] for _ in range(3)]


@probe("a request that arrives byte by byte")
def _slowly(session: Session) -> Any:
    for byte in framed(header(3, 1, correlation=21) + struct.pack(">i", 0)):
        session.send_raw(bytes([byte]))
    return struct.unpack_from(">i", session.read_raw())[0]
