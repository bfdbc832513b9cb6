"""One connection to one broker: frames, correlation of answers, pipelining, version negotiation, TLS and SASL.

connection = await Connection.open("127.0.0.1", 9092, client_id="me")
metadata = messages.api("metadata")
answer = await connection.request("metadata", metadata.Request(topics=None))
"""

from __future__ import annotations

import asyncio
import ssl
import struct
import time
from collections.abc import Callable
from typing import Any

from penstock.base.version import __version__
from penstock.client.errors import (
    AuthenticationFailed,
    BrokerUnreachable,
    ClientError,
    ConnectionLost,
    RequestTimedOut,
    UnsupportedApi,
    why_unreachable,
)
from penstock.client.frames import FrameReader
from penstock.client.sasl import authenticate
from penstock.client.security import Security
from penstock.protocol import messages
from penstock.protocol.errors import ErrorCode, error_name

__all__ = ["Connection"]

API_VERSIONS_KEY = 18
MAX_RESPONSE_BYTES = 512 * 1024 * 1024
MAX_IN_FLIGHT = 1000
_HAS_EXPIRED = 10  # X509_V_ERR_CERT_HAS_EXPIRED
_HEADER = struct.Struct(">ihhi")


class Posted:
    """A request whose answer goes to a callback as it comes in, without a task in between: for loops that are hot."""

    __slots__ = ("_on_answer", "_on_lost")

    def __init__(self, on_answer: Callable[[memoryview], None], on_lost: Callable[[BaseException], None]) -> None:
        self._on_answer: Callable[[memoryview], None] | None = on_answer
        self._on_lost = on_lost

    def cancel(self) -> None:
        """Neither callback will be called any more."""
        self._on_answer = None

    def done(self) -> bool:
        return self._on_answer is None

    def set_result(self, frame: memoryview) -> None:
        on_answer, self._on_answer = self._on_answer, None
        if on_answer is not None:
            on_answer(frame[4 + _tags_length(frame) :])

    def set_exception(self, error: BaseException) -> None:
        if self._on_answer is not None:
            self._on_answer = None
            self._on_lost(error)

    def exception(self) -> None:
        """For the connection, which treats it like a future."""


class Connection:
    """Requests go out in the order of the calls; each caller awaits its own answer. Use `open` to make one."""

    def __init__(self, host: str, port: int, client_id: str, request_timeout_s: float) -> None:
        self.host, self.port = host, port
        self.client_id = client_id
        self.request_timeout_s = request_timeout_s
        self.api_versions: dict[int, tuple[int, int]] = {}
        self.finalized_features: dict[str, int] = {}
        self.session_expires_at: float | None = None  # monotonic seconds; SASL sessions may be limited (KIP-368)
        self._frames = FrameReader(self._on_frame, self._on_lost, MAX_RESPONSE_BYTES)
        self._transport: asyncio.Transport | None = None
        self._correlation_id = 0
        self._waiting: dict[int, asyncio.Future[memoryview] | Posted] = {}
        self._free_slots = asyncio.Semaphore(MAX_IN_FLIGHT)
        self._lost: Exception | None = None
        self._encoded_client_id = client_id.encode()

    # --- life ---

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        client_id: str = "penstock",
        security: Security | None = None,
        connect_timeout_s: float = 10.0,
        request_timeout_s: float = 30.0,
    ) -> Connection:
        """Connect, agree on versions and authenticate; the connection is then ready for any request."""
        security = security or Security()
        connection = cls(host, port, client_id, request_timeout_s)
        try:
            async with asyncio.timeout(connect_timeout_s):
                await connection._connect(security)
                await connection._negotiate()
                if security.sasl:
                    lifetime_ms = await authenticate(connection, security)
                    if lifetime_ms > 0:
                        # A new connection is made well before the broker would end this one.
                        connection.session_expires_at = time.monotonic() + lifetime_ms / 1000 * 0.8
        except BaseException as error:
            connection.close()
            if isinstance(error, TimeoutError):
                raise BrokerUnreachable(
                    f"{connection.address} said nothing for {connect_timeout_s:g} s (is a listener with"
                    f" security.protocol={security.protocol} there, and no firewall between?)"
                ) from error
            raise
        return connection

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def local_address(self) -> tuple[str, int]:
        """Host and port of our end."""
        assert self._transport is not None
        host, port = self._transport.get_extra_info("sockname")[:2]
        return host, port

    @property
    def closed(self) -> bool:
        return self._lost is not None or self._transport is None or self._transport.is_closing()

    @property
    def expired(self) -> bool:
        """The SASL session is about to end: finish what is in flight and open another connection."""
        return self.session_expires_at is not None and time.monotonic() > self.session_expires_at

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    def close(self) -> None:
        self._on_lost(ConnectionLost(f"the connection to {self.address} was closed by us"))

    async def _connect(self, security: Security) -> None:
        loop = asyncio.get_running_loop()
        try:
            context = security.ssl_context()
        except (OSError, ssl.SSLError) as error:
            raise AuthenticationFailed(f"cannot load the TLS files for {self.address}: {error}") from error
        try:
            transport, _ = await loop.create_connection(
                lambda: self._frames, self.host, self.port, ssl=context, server_hostname=self.host if context else None
            )
        except ssl.SSLCertVerificationError as error:
            if error.verify_code == _HAS_EXPIRED:
                raise AuthenticationFailed(
                    f"the certificate of {self.address} has expired: it must be renewed there"
                    " (`penstock doctor` warns of it two weeks before)"
                ) from error
            raise AuthenticationFailed(
                f"{self.address} showed a certificate that we do not trust ({error.verify_message}): set"
                " ssl.ca.location to the authority that signed it, and connect by a name that the certificate carries"
            ) from error
        except ssl.SSLError as error:
            raise AuthenticationFailed(
                f"TLS with {self.address} failed ({error.reason or error}): check that this port speaks TLS"
                " (security.protocol) and whether it demands a client certificate"
            ) from error
        except OSError as error:
            raise BrokerUnreachable(why_unreachable(self.host, self.port, error)) from error
        self._transport = transport

    async def _negotiate(self) -> None:
        """Ask for the broker's versions in our newest form; one that is older answers in version 0 with its list."""
        api = messages.api("api_versions")
        request = api.Request(client_software_name="penstock", client_software_version=__version__)
        version = api.max_version
        for _ in range(3):
            body = await self.request_bytes(
                API_VERSIONS_KEY,
                version,
                messages.encode_request(API_VERSIONS_KEY, version, request),
                version >= 3,
                False,
            )
            error = struct.unpack_from(">h", body)[0]
            if error == ErrorCode.UNSUPPORTED_VERSION and version > 0:
                listed = messages.decode_response(API_VERSIONS_KEY, 0, body)
                known = next((key.max_version for key in listed.api_keys if key.api_key == API_VERSIONS_KEY), 0)
                version = min(known, version - 1)
                continue
            if error:
                raise ClientError(f"{self.address} answered ApiVersions v{version} with {error_name(error)}")
            answer = messages.decode_response(API_VERSIONS_KEY, version, body)
            self.api_versions = {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}
            self.finalized_features = {f.name: f.max_version_level for f in answer.finalized_features}
            return
        raise ClientError(f"{self.address} accepts no version of ApiVersions that we know")

    # --- requests ---

    def version_for(self, api_name: str, highest: int | None = None) -> int:
        """The newest version that both sides speak, not above `highest`."""
        api = messages.api(api_name)
        ours = api.max_version if highest is None else min(highest, api.max_version)
        try:
            low, high = self.api_versions[api.key]
        except KeyError:
            raise UnsupportedApi(f"{self.address} does not offer {api_name} (API key {api.key})") from None
        version = min(ours, high)
        if version < max(low, api.min_version):
            raise UnsupportedApi(
                f"{self.address} offers {api_name} in versions {low} to {high}, we speak {api.min_version} to {ours}"
            )
        return version

    async def request(
        self, api_name: str, message: Any, version: int | None = None, timeout_s: float | None = None
    ) -> Any:
        """Send a message and return the decoded answer, in `version` or the newest one that both sides speak."""
        api = messages.api(api_name)
        if version is None:
            version = self.version_for(api_name)
        flexible = messages.is_flexible(api.key, version)
        body = messages.encode_request(api.key, version, message)
        answer = await self.request_bytes(api.key, version, body, flexible, timeout_s=timeout_s)
        return messages.decode_response(api.key, version, answer)

    async def request_bytes(
        self,
        api_key: int,
        version: int,
        body: bytes | bytearray,
        flexible: bool = True,
        flexible_answer: bool | None = None,
        timeout_s: float | None = None,
    ) -> memoryview:
        """Send an encoded body and return the answer's bytes behind its header: for messages that kio does not know."""
        async with self._free_slots:
            future: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
            self._send(api_key, version, body, flexible, future)
            timeout_s = self.request_timeout_s if timeout_s is None else timeout_s
            try:
                async with asyncio.timeout(timeout_s):
                    await self._frames.drained()
                    frame = await future
            except TimeoutError:
                error = RequestTimedOut(
                    f"{self.address} did not answer {_name(api_key)} within {timeout_s:g} s: it may be overloaded;"
                    " look at its log, or raise the request timeout"
                )
                self._on_lost(error)
                raise error from None
        has_tags = flexible if flexible_answer is None else flexible_answer
        return frame[4 + _tags_length(frame) :] if has_tags else frame[4:]

    def post(
        self,
        api_key: int,
        version: int,
        body: bytes | bytearray,
        on_answer: Callable[[memoryview], None],
        on_lost: Callable[[BaseException], None],
    ) -> Posted:
        """Send an encoded body of a flexible version; one of the callbacks is called, on_answer with what follows the
        header. Deadlines are the caller's."""
        posted = Posted(on_answer, on_lost)
        self._send(api_key, version, body, True, posted)
        return posted

    async def send_without_answer(self, api_name: str, message: Any, version: int | None = None) -> None:
        """Produce with acks=0 is the one request that brokers do not answer."""
        api = messages.api(api_name)
        version = self.version_for(api_name) if version is None else version
        body = messages.encode_request(api.key, version, message)
        self._send(api.key, version, body, messages.is_flexible(api.key, version), None)
        await self._frames.drained()

    def _send(
        self,
        api_key: int,
        version: int,
        body: bytes | bytearray,
        flexible: bool,
        future: asyncio.Future[memoryview] | Posted | None,
    ) -> None:
        if self._lost is not None or self._transport is None:
            raise ConnectionLost(f"the connection to {self.address} is closed") from self._lost
        self._correlation_id = correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        client_id = self._encoded_client_id
        size = 10 + len(client_id) + flexible + len(body)
        head = _HEADER.pack(size, api_key, version, correlation_id) + struct.pack(">h", len(client_id)) + client_id
        if future is not None:
            self._waiting[correlation_id] = future
        self._transport.writelines((head + b"\x00" if flexible else head, body))

    # --- what the transport tells ---

    def _on_frame(self, frame: memoryview) -> None:
        # A cancelled caller stays in the table until its answer comes, so that the answer is not taken for a stray.
        if len(frame) < 4:
            self._on_lost(ConnectionLost(f"{self.address} sent a frame of {len(frame)} bytes: it does not speak Kafka"))
            return
        (correlation_id,) = struct.unpack_from(">i", frame)
        future = self._waiting.pop(correlation_id, None)
        if future is None:
            self._on_lost(ConnectionLost(f"{self.address} answered a request ({correlation_id}) that nobody sent"))
        elif not future.done():
            future.set_result(frame)

    def _on_lost(self, error: Exception | None) -> None:
        if self._lost is None:
            cause = str(error) if error else "the broker closed it"
            self._lost = error if isinstance(error, ClientError) else ConnectionLost(
                f"lost the connection to {self.address} ({cause}): the broker may have stopped, or this listener"
                " expects another security.protocol"
            )  # fmt: skip
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(self._lost)
                future.exception()  # whoever still awaits it gets it; nobody else has to
        if self._transport is not None:
            self._transport.abort() if error else self._transport.close()


def _tags_length(frame: memoryview) -> int:
    """Bytes that the tagged fields of a response header take (brokers send none, so: one zero byte)."""
    from penstock.protocol.message_compiler import read_uvarint

    count, position = read_uvarint(frame, 4)
    for _ in range(count):
        _, position = read_uvarint(frame, position)
        size, position = read_uvarint(frame, position)
        position += size
    return position - 4


def _name(api_key: int) -> str:
    try:
        return messages.api(api_key).name
    except KeyError:
        return f"request {api_key}"
