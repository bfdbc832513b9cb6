"""The client's side of SASL: handshake, then PLAIN, SCRAM (through scramp) or OAUTHBEARER inside SaslAuthenticate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.client.errors import AuthenticationFailed, ConnectionLost
from penstock.client.security import Security
from penstock.protocol import messages
from penstock.protocol.errors import error_name

if TYPE_CHECKING:
    from penstock.client.connection import Connection

__all__ = ["authenticate"]


async def authenticate(connection: Connection, security: Security) -> int:
    """Prove the identity; the answer is the session's lifetime in milliseconds (0: unlimited)."""
    handshake = messages.api("sasl_handshake")
    answer = await connection.request("sasl_handshake", handshake.Request(mechanism=security.mechanism), version=1)
    if answer.error_code:
        offered = ", ".join(answer.mechanisms) or "none: this listener takes no SASL (security.protocol)"
        raise AuthenticationFailed(
            f"{connection.address} does not offer sasl.mechanism={security.mechanism}; it offers {offered}"
        )
    exchange = _EXCHANGES[security.mechanism](security)
    reply = b""
    lifetime_ms = 0
    outgoing = exchange.first()
    for _ in range(4):
        answer = await _step(connection, security, outgoing)
        reply, lifetime_ms = answer.auth_bytes, answer.session_lifetime_ms
        try:
            following = exchange.next(reply)
        except Exception as error:
            raise AuthenticationFailed(
                f"{connection.address} could not prove that it knows the password of {security.username!r}: {error}"
            ) from error
        if following is None:
            return lifetime_ms
        outgoing = following
    raise AuthenticationFailed(f"{connection.address} never ends the {security.mechanism} exchange")


async def _step(connection: Connection, security: Security, data: bytes) -> Any:
    api = messages.api("sasl_authenticate")
    who = f" for {security.username!r}" if security.username else ""
    advice = "check sasl.username, sasl.password and sasl.mechanism"
    try:
        answer = await connection.request("sasl_authenticate", api.Request(auth_bytes=data))
    except ConnectionLost as error:
        raise AuthenticationFailed(
            f"{connection.address} ended the connection during {security.mechanism}{who}: {advice}"
        ) from error
    if answer.error_code:
        why = answer.error_message or error_name(answer.error_code)
        raise AuthenticationFailed(f"{connection.address} refused {security.mechanism}{who}: {why}; {advice}")
    return answer


class _Plain:
    def __init__(self, security: Security) -> None:
        self._message = f"\0{security.username}\0{security.password}".encode()

    def first(self) -> bytes:
        return self._message

    def next(self, reply: bytes) -> bytes | None:
        return None


class _Scram:
    def __init__(self, security: Security) -> None:
        from scramp import ScramClient

        self._client = ScramClient([security.mechanism], security.username, security.password)
        self._token_auth = security.token_auth
        self._replies = 0

    def first(self) -> bytes:
        message = self._client.get_client_first()
        if self._token_auth:
            # Kafka's extension for delegation tokens; both sides' proofs cover it.
            message += ",tokenauth=true"
            self._client.client_first_bare = message.partition(",,")[2]
        return message.encode()

    def next(self, reply: bytes) -> bytes | None:
        self._replies += 1
        if self._replies == 1:
            self._client.set_server_first(reply.decode())
            return self._client.get_client_final().encode()
        self._client.set_server_final(reply.decode())
        return None


class _OAuthBearer:
    def __init__(self, security: Security) -> None:
        assert security.token_provider is not None
        self._token = security.token_provider()

    def first(self) -> bytes:
        return f"n,,\x01auth=Bearer {self._token}\x01\x01".encode()

    def next(self, reply: bytes) -> bytes | None:
        # A broker that refuses sends its reason as JSON and expects one byte back before it closes (RFC 7628).
        return b"\x01" if reply else None


_EXCHANGES: dict[str, Any] = {
    "PLAIN": _Plain,
    "SCRAM-SHA-256": _Scram,
    "SCRAM-SHA-512": _Scram,
    "OAUTHBEARER": _OAuthBearer,
}
