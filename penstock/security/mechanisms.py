"""PLAIN and SCRAM as exchanges: what they ask of whoever keeps the users."""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import Callable, Mapping

from penstock.security.exchange import Authenticated, AuthenticationFailed, Step
from penstock.security.principal import USER, Principal
from penstock.security.scram import ScramCredential, ScramFailed, ScramServer, made_up_credential

__all__ = ["PlainExchange", "ScramExchange", "TokenOwner"]

_MADE_UP_KEY = secrets.token_bytes(32)
_WRONG_PASSWORD = "Authentication failed: Invalid username or password"

TokenOwner = Callable[[str], tuple[Principal, int] | None]
"""Token id → its owner and its end in milliseconds, None if it is not valid any more."""


class PlainExchange:
    """PLAIN (RFC 4616): name and password in one message, checked against a table of users."""

    def __init__(self, users: Callable[[], Mapping[str, str]]) -> None:
        self._users = users

    async def step(self, data: bytes) -> Step:
        parts = data.split(b"\0")
        if len(parts) != 3 or not parts[1] or not parts[2]:
            raise AuthenticationFailed("Authentication failed: Invalid SASL/PLAIN response", "malformed message")
        try:
            authzid, name, password = (part.decode() for part in parts)
        except UnicodeDecodeError:
            raise AuthenticationFailed("Authentication failed: Invalid SASL/PLAIN response", "not UTF-8") from None
        if authzid and authzid != name:
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different from username",
                username=name,
            )
        expected = self._users().get(name)
        # The comparison is made for unknown users too: how long an answer takes says nothing.
        same = hmac.compare_digest((expected or secrets.token_hex()).encode(), password.encode())
        if expected is None or not same:
            raise AuthenticationFailed(_WRONG_PASSWORD, username=name)
        return Step(b"", Authenticated(Principal(USER, name)))


class ScramExchange:
    """SCRAM with the credentials of users, or of delegation tokens where the client says so."""

    def __init__(
        self,
        mechanism: str,
        find_user: Callable[[str, str], ScramCredential | None],
        find_token: Callable[[str, str], ScramCredential | None],
        token_owner: TokenOwner,
    ) -> None:
        self._mechanism = mechanism
        self._find_user = find_user
        self._find_token = find_token
        self._token_owner = token_owner
        self._known = False
        self._server = ScramServer(mechanism)
        self._greeted = False

    def _find(self, name: str, is_token: bool) -> ScramCredential:
        found = (self._find_token if is_token else self._find_user)(self._mechanism, name)
        self._known = found is not None
        return found or made_up_credential(self._mechanism, name, _MADE_UP_KEY)

    async def step(self, data: bytes) -> Step:
        server = self._server
        try:
            if not self._greeted:
                self._greeted = True
                return Step(await self._begin(data))
            reply = server.final(data)
            if not self._known:
                raise ScramFailed("no such user")
        except ScramFailed as error:
            raise AuthenticationFailed(
                "Authentication failed during authentication due to invalid credentials with SASL mechanism"
                f" {self._mechanism}",
                str(error),
                server.username,
            ) from None
        return Step(reply, self._outcome())

    async def _begin(self, data: bytes) -> bytes:
        # A token's credential is derived when it is used, which takes milliseconds that others would wait.
        if b"tokenauth=" not in data:
            return self._server.first(data, self._find)
        return await asyncio.get_running_loop().run_in_executor(None, self._server.first, data, self._find)

    def _outcome(self) -> Authenticated:
        server = self._server
        if not server.is_token:
            return Authenticated(Principal(USER, server.username))
        owner = self._token_owner(server.username)
        if owner is None:
            raise AuthenticationFailed("Authentication failed: the delegation token is not valid any more")
        return Authenticated(owner[0], owner[1], server.username)
