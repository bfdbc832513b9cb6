"""TLS for client connections, without asyncio's streams: the same buffers, an SSLObject between them and the socket.

Files are read and encrypted in the process here: sendfile cannot encrypt. Keys and certificates come from
`security.tls_material`.
"""

from __future__ import annotations

import os
import socket
import ssl
from typing import TYPE_CHECKING, Any

from penstock.broker.network.connection import Connection
from penstock.broker.network.outbox import BLOCKED, COLD, DRAINED, FileRegion, Outbox
from penstock.security.certificate_names import distinguished_name
from penstock.security.principal import USER, Principal

if TYPE_CHECKING:
    from penstock.broker.dispatch import Dispatcher
    from penstock.broker.network.listener import Listener

ENCRYPT_AT_ONCE_BYTES = 64 * 1024
RECEIVE_BYTES = 64 * 1024


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
        self.tls = listener.tls.context.wrap_bio(self.from_client, self.to_client, server_side=True)
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
            return int(read(len(self.view) - self.end, self.view[self.end :]))
        except ssl.SSLWantReadError:
            return -1

    def _read_on_soon(self) -> None:
        """Bytes that wait inside the TLS layer are invisible to the poller: come back for them."""
        if self.from_client.pending or (self.handshaken and self.tls.pending()):
            self.loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        if self.dropping:
            self.drop_contents()
        elif self.reading and not self.busy and not self.blocked and not self.closed:
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
        """A client's certificate names it, by the rules of ssl.principal.mapping.rules; with SASL that names it."""
        data = None if self.listener.needs_sasl else self.tls.getpeercert(binary_form=True)
        if not data:
            return
        from cryptography import x509

        distinguished = distinguished_name(x509.load_der_x509_certificate(data).subject)
        name = self.dispatcher.broker.authentication.mapping_rules.name(distinguished)
        if name is None:
            raise ssl.SSLError(f"no rule of ssl.principal.mapping.rules fits {distinguished!r}")
        self.principal = Principal(USER, name)
