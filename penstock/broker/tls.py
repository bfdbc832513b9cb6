"""TLS for client connections, without asyncio's streams: the same buffers, an SSLObject between them and the socket.

Files are read and encrypted in the process here: sendfile cannot encrypt. Settings are Kafka's `ssl.*`, also under
`listener.name.<listener>.`; key and certificates are PEM (`ssl.keystore.type=PEM`).
"""

from __future__ import annotations

import os
import socket
import ssl
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.broker.connection import Connection
from penstock.broker.outbox import BLOCKED, COLD, DRAINED, FileRegion, Outbox
from penstock.security.principal import USER, Principal

if TYPE_CHECKING:
    from penstock.broker.dispatch import Dispatcher
    from penstock.broker.listener import Listener

ENCRYPT_AT_ONCE_BYTES = 64 * 1024
RECEIVE_BYTES = 64 * 1024


class TlsSettingsError(Exception):
    """A TLS listener cannot be opened with these settings."""


def server_context(settings: Any, listener: str) -> ssl.SSLContext:
    """The context of a listener, from PEM files or PEM text in the settings."""

    def value(name: str) -> Any:
        found = settings.listener_value(listener, name)
        return str(getattr(found, "value", found)) if found is not None else None

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    kind = value("ssl.keystore.type") or "JKS"
    if kind.upper() != "PEM":
        raise TlsSettingsError(f"listener {listener}: ssl.keystore.type={kind}, only PEM can be read")
    _load_key(context, value, listener)
    _load_trust(context, value)
    demand = (value("ssl.client.auth") or "none").lower()
    modes = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
    context.verify_mode = modes.get(demand, ssl.CERT_NONE)
    return context


def _load_key(context: ssl.SSLContext, value: Any, listener: str) -> None:
    password = value("ssl.key.password")
    location = value("ssl.keystore.location")
    try:
        if location:
            context.load_cert_chain(location, password=password)
            return
        chain, key = value("ssl.keystore.certificate.chain"), value("ssl.keystore.key")
        if not chain or not key:
            raise TlsSettingsError(f"listener {listener}: set ssl.keystore.location, or its certificate chain and key")
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:  # the ssl module only reads files
            Path(file.name).chmod(0o600)
            file.write(f"{chain}\n{key}\n")
            file.flush()
            context.load_cert_chain(file.name, password=password)
    except (OSError, ssl.SSLError) as error:
        raise TlsSettingsError(f"listener {listener}: the certificate cannot be loaded: {error}") from error


def _load_trust(context: ssl.SSLContext, value: Any) -> None:
    location, text = value("ssl.truststore.location"), value("ssl.truststore.certificates")
    if location:
        context.load_verify_locations(cafile=location)
    elif text:
        context.load_verify_locations(cadata=text)


class TlsOutbox(Outbox):
    """Encrypts piece by piece, so that no more than one piece is held beside what the client has not taken."""

    __slots__ = ("encrypted", "tls", "wire")

    def __init__(self, sock: socket.socket, tls: ssl.SSLObject, wire: ssl.MemoryBIO) -> None:
        super().__init__(sock)
        self.tls = tls
        self.wire = wire
        self.encrypted: memoryview = memoryview(b"")

    def send_now(self, data: bytes | bytearray) -> bool:
        self.parts.append(data)
        return False

    def flush(self) -> int:
        while True:
            if not self.send_encrypted():
                return BLOCKED
            if not self.parts:
                return DRAINED
            if not self._encrypt_next():
                return COLD

    def send_encrypted(self) -> bool:
        """Whether everything encrypted so far is with the kernel."""
        while True:
            if not len(self.encrypted):
                if not self.wire.pending:
                    return True
                self.encrypted = memoryview(self.wire.read())
            try:
                sent = self.sock.send(self.encrypted)
            except BlockingIOError:
                return False
            self.sent_bytes += sent
            self.encrypted = self.encrypted[sent:]

    def _encrypt_next(self) -> bool:
        """Encrypt a piece of the first part; False if its bytes must come from the disk first."""
        part = self.parts[0]
        if type(part) is not FileRegion:
            piece = memoryview(part)[:ENCRYPT_AT_ONCE_BYTES]
            self.tls.write(piece)
            if len(piece) == len(part):
                self.parts.popleft()
            else:
                self.parts[0] = memoryview(part)[len(piece) :]
            return True
        if part.warm_until <= part.position and not part.probe():
            self.cold_region = part
            return False
        data = os.pread(part.fd, min(ENCRYPT_AT_ONCE_BYTES, part.length), part.position)
        if not data:
            raise part.gone()
        self.tls.write(data)
        part.position += len(data)
        part.length -= len(data)
        if part.length == 0:
            self.parts.popleft()
        return True


class TlsConnection(Connection):
    __slots__ = ("from_client", "handshaken", "tls", "to_client")

    def __init__(self, sock: socket.socket, client_host: str, listener: Listener, dispatcher: Dispatcher) -> None:
        assert listener.tls is not None
        self.from_client = ssl.MemoryBIO()
        self.to_client = ssl.MemoryBIO()
        self.tls = listener.tls.wrap_bio(self.from_client, self.to_client, server_side=True)
        self.handshaken = False
        super().__init__(sock, client_host, listener, dispatcher)

    def _new_outbox(self, sock: socket.socket) -> Outbox:
        return TlsOutbox(sock, self.tls, self.to_client)

    def receive(self) -> int:
        """As of Connection: decrypted bytes in the buffer, -1 nothing yet, 0 the end. SSLError: not our protocol."""
        count = self._decrypt()
        if count == -1:
            try:
                data = self.sock.recv(RECEIVE_BYTES)
            except (BlockingIOError, InterruptedError):
                return -1
            if not data:
                return 0
            self.from_client.write(data)
            if not self.handshaken and not self._shake_hands():
                return -1
            count = self._decrypt()
        self._read_on_soon()
        return count

    def _shake_hands(self) -> bool:
        """One step of the handshake; whether it is complete."""
        try:
            self.tls.do_handshake()
            self.handshaken = True
            self._name_principal()
        except ssl.SSLWantReadError:
            return False
        finally:
            self._send_handshake()
        return True

    def _decrypt(self) -> int:
        if not self.handshaken:
            return -1
        try:
            # A zero-byte answer is the client's close_notify.
            read: Any = self.tls.read  # the stubs forget that it fills a buffer and returns a count
            return int(read(len(self.buffer) - self.end, self.view[self.end :]))
        except ssl.SSLWantReadError:
            return -1

    def _read_on_soon(self) -> None:
        """Bytes that wait inside the TLS layer are invisible to the poller: come back for them."""
        if self.from_client.pending or (self.handshaken and self.tls.pending()):
            self.loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        if self.reading and not self.busy and not self.blocked and not self.closed:
            self.on_readable()

    def _send_handshake(self) -> None:
        if isinstance(self.outbox, TlsOutbox) and not self.outbox.send_encrypted() and not self.blocked:
            self.blocked = True
            self.loop.add_writer(self.fd, self.send)

    def start_reading(self) -> None:
        super().start_reading()
        self._read_on_soon()

    def resume(self) -> None:
        super().resume()
        if not self.closed:
            self._read_on_soon()

    def _name_principal(self) -> None:
        """The distinguished name of a client's certificate, as Kafka writes it."""
        certificate: Any = self.tls.getpeercert()
        if not certificate:
            return
        names = [pair for group in certificate.get("subject", ()) for pair in group]
        short = {
            "commonName": "CN",
            "organizationalUnitName": "OU",
            "organizationName": "O",
            "localityName": "L",
            "stateOrProvinceName": "ST",
            "countryName": "C",
        }
        name = ",".join(f"{short.get(str(k), str(k))}={v}" for k, v in reversed(names))
        self.principal = Principal(USER, name)
