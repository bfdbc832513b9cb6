"""OAUTHBEARER (RFC 7628): a signed token instead of a password; its signature, times, issuer and audience count."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jwt

from penstock.security.exchange import Authenticated, AuthenticationFailed, Step
from penstock.security.key_set import KeySet, fits
from penstock.security.principal import USER, Principal

__all__ = ["OAuthExchange", "OAuthRules", "TokenRefused", "TokenValidator"]

logger = logging.getLogger(__name__)

MAX_TOKEN_BYTES = 16 * 1024
_END_OF_TIME_MS = 1 << 62
_FIRST = re.compile(rb"n,(?:a=(?P<authzid>[^,]*))?,\x01(?P<pairs>(?:[A-Za-z]+=[^\x01]*\x01)*)\x01")


class TokenRefused(Exception):
    """Why a token does not count; never with the token in it."""


@dataclass(frozen=True, slots=True)
class OAuthRules:
    algorithms: tuple[str, ...]
    audiences: tuple[str, ...] = ()
    issuer: str | None = None
    clock_skew_s: int = 30
    name_claim: str = "sub"
    scope_claim: str = "scope"
    required_scopes: tuple[str, ...] = ()


class TokenValidator:
    def __init__(self, keys: KeySet, rules: OAuthRules) -> None:
        self._keys = keys
        self._rules = rules

    async def validate(self, token: str) -> Authenticated:
        """The token's user until the token's end; raises TokenRefused."""
        if len(token) > MAX_TOKEN_BYTES:
            raise TokenRefused("the token is too long")
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError, TypeError, AttributeError, RecursionError) as error:
            raise TokenRefused(f"not a token: {type(error).__name__}") from None
        algorithm = header.get("alg")
        if algorithm not in self._rules.algorithms:
            raise TokenRefused("the token is signed by an algorithm that is not allowed")
        key = await self._keys.find(str(header.get("kid", "")))
        if key is None or not fits(key, algorithm):
            raise TokenRefused("the token is signed with a key that is not known")
        try:
            claims = self._claims(token, key, algorithm)
        except jwt.PyJWTError as error:
            raise TokenRefused(f"{type(error).__name__}: {error}") from None
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise TokenRefused(f"not a token: {type(error).__name__}") from None
        return self._named(claims)

    def _claims(self, token: str, key: Any, algorithm: str) -> dict[str, Any]:
        rules = self._rules
        demanded = ["exp", rules.name_claim]
        if rules.audiences:
            demanded.append("aud")
        if rules.issuer:
            demanded.append("iss")
        return dict(
            jwt.decode(
                token,
                key.key,
                algorithms=[algorithm],
                audience=list(rules.audiences) or None,
                issuer=rules.issuer,
                leeway=rules.clock_skew_s,
                options={
                    "require": demanded,
                    "verify_aud": bool(rules.audiences),
                    "verify_iss": bool(rules.issuer),
                    "verify_sub": rules.name_claim == "sub",
                },
            )
        )

    def _named(self, claims: dict[str, Any]) -> Authenticated:
        rules = self._rules
        name = claims.get(rules.name_claim)
        if not isinstance(name, str) or not name.strip():
            raise TokenRefused(f"the token names nobody in {rules.name_claim}")
        scopes = claims.get(rules.scope_claim, ())
        given = set(scopes.split()) if isinstance(scopes, str) else {str(s) for s in scopes or ()}
        if not given.issuperset(rules.required_scopes):
            raise TokenRefused("the token's scope is not enough")
        return Authenticated(Principal(USER, name), min(int(claims["exp"]) * 1000, _END_OF_TIME_MS))


class OAuthExchange:
    """A token that is refused is told why in JSON; the client answers with one byte and learns that it is over."""

    def __init__(self, validate: Callable[[str], Any]) -> None:
        self._validate = validate
        self._refused: TokenRefused | None = None

    async def step(self, data: bytes) -> Step:
        if self._refused is not None:
            raise AuthenticationFailed("Authentication failed: invalid token", str(self._refused))
        match = _FIRST.fullmatch(data)
        if match is None:
            raise AuthenticationFailed("Authentication failed: Invalid OAUTHBEARER client first message", "malformed")
        pairs = dict(pair.partition(b"=")[::2] for pair in match["pairs"].split(b"\x01") if pair)
        scheme, _, token = pairs.get(b"auth", b"").partition(b" ")
        if scheme.lower() != b"bearer" or not token.strip():
            raise AuthenticationFailed("Authentication failed: Invalid OAUTHBEARER client first message", "no token")
        try:
            outcome = await self._validate(token.strip().decode("ascii"))
            authzid = (match["authzid"] or b"").decode()
            if authzid and authzid != outcome.principal.name:
                raise TokenRefused("the authorization id is not the token's user")
        except UnicodeDecodeError:
            self._refused = TokenRefused("not ASCII")
        except TokenRefused as error:
            self._refused = error
        else:
            return Step(b"", outcome)
        # Said now: a client that has read it may go away without the last byte that would end the exchange.
        logger.warning("a token was refused: %s", self._refused)
        return Step(json.dumps({"status": "invalid_token"}).encode())
