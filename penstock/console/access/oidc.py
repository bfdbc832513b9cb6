"""Logging in with OpenID Connect: the authorization-code flow with PKCE, state and nonce, and what its token must say.

The provider's discovery document says where to go; keys come from its JWKS; nothing of the token counts before its
signature, issuer, audience, times and nonce are right. The browser that began is the only one that can end it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

import httpx
import jwt

from penstock.console.access.access_file import LOOPBACK_NAMES, Oidc, role_for, safe_address
from penstock.console.access.users import User
from penstock.security.key_set import KeySet, fits

log = logging.getLogger(__name__)

SOURCE = "oidc"
PENDING_SECONDS = 600.0
FETCH_SECONDS, DISCOVERY_SECONDS = 10.0, 3600.0
LARGEST_ANSWER, LARGEST_TOKEN = 1 << 20, 64 << 10
SKEW_SECONDS = 30


class LoginRefused(Exception):
    """Why nobody got in; never with a code or a token in it."""


@dataclass(frozen=True, slots=True)
class _Provider:
    authorize: str
    token: str
    keys: KeySet
    until: float


class OidcLogins:
    def __init__(
        self,
        rules: Oidc,
        client_secret: str | None,
        redirect_uri: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.rules, self._secret, self._redirect_uri, self._clock = rules, client_secret, redirect_uri, clock
        self._key = secrets.token_bytes(32)
        self._provider: _Provider | None = None

    async def begin(self, next_page: str) -> tuple[str, str]:
        """(where the browser goes, the cookie without which it cannot end what it begins)."""
        provider = await self._discovered()
        state, nonce, verifier = (secrets.token_urlsafe(48) for _ in range(3))
        challenge = _text(hashlib.sha256(verifier.encode()).digest())
        question = {
            "response_type": "code",
            "client_id": self.rules.client_id,
            "redirect_uri": self._redirect_uri,
            "scope": " ".join(dict.fromkeys(["openid", *self.rules.scopes])),
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        joint = "&" if urlsplit(provider.authorize).query else "?"
        until = self._clock() + PENDING_SECONDS
        kept = {"state": state, "nonce": nonce, "verifier": verifier, "next": next_page, "until": until}
        return provider.authorize + joint + urlencode(question), self._sealed(kept)

    async def finish(self, answer: Mapping[str, str], cookie: str) -> tuple[User, str]:
        """(who it is, the page that was wanted) of what the provider sent the browser back with."""
        begun = self._opened(cookie)
        if begun is None or not _same(answer.get("state", ""), begun["state"]):
            raise LoginRefused("this login was not begun in this browser; begin again")
        if begun["until"] <= self._clock():
            raise LoginRefused("this login took too long; begin again")
        if "error" in answer:
            raise LoginRefused(f"the provider refused: {answer['error'][:100]}")
        if answer.get("iss", self.rules.issuer) != self.rules.issuer:
            raise LoginRefused("the answer is of another provider")
        provider = await self._discovered()
        token = await self._exchanged(provider, answer.get("code", ""), begun["verifier"])
        claims = await self._claims(provider, token)
        if not _same(str(claims.get("nonce", "")), begun["nonce"]):
            raise LoginRefused("the token is not of this login")
        return self._user(claims), begun["next"]

    def _sealed(self, content: Mapping[str, Any]) -> str:
        """What is kept of a login that has begun is kept by its browser: strangers cannot fill our memory."""
        body = _text(json.dumps(content).encode())
        return f"{body}.{self._mac(body)}"

    def _opened(self, cookie: str) -> dict[str, Any] | None:
        body, _, mac = cookie.partition(".")
        if not _same(mac, self._mac(body)):
            return None
        content: dict[str, Any] = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        return content

    def _mac(self, body: str) -> str:
        return _text(hmac.digest(self._key, body.encode(), "sha256"))

    def is_current(self, _user: User) -> bool:
        return True  # providers tell nobody; the session's own end counts

    async def _discovered(self) -> _Provider:
        if self._provider is None or self._provider.until <= self._clock():
            address = self.rules.issuer.rstrip("/") + "/.well-known/openid-configuration"
            content = await self._ask("GET", address)
            if content.get("issuer") != self.rules.issuer:
                raise LoginRefused(f"the provider at {address} says that it is another issuer")
            try:
                self._provider = _Provider(
                    safe_address(str(content["authorization_endpoint"])),
                    safe_address(str(content["token_endpoint"])),
                    KeySet(safe_address(str(content["jwks_uri"])), 3600.0, 1.0, 60.0),
                    self._clock() + DISCOVERY_SECONDS,
                )
            except (KeyError, ValueError) as error:
                raise LoginRefused(f"the provider's description {address} cannot be used: {error}") from None
        return self._provider

    async def _exchanged(self, provider: _Provider, code: str, verifier: str) -> str:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect_uri,
            "client_id": self.rules.client_id,
            "code_verifier": verifier,
        }
        login = (self.rules.client_id, self._secret) if self._secret is not None else None
        content = await self._ask("POST", provider.token, data=form, auth=login)
        token = content.get("id_token")
        if not isinstance(token, str) or len(token) > LARGEST_TOKEN:
            raise LoginRefused("the provider sent no id_token; is the scope openid there?")
        return token

    async def _ask(self, method: str, address: str, **more: Any) -> dict[str, Any]:
        """JSON of the provider; where it fails, why, without what was sent."""
        by_itself = urlsplit(address).hostname in LOOPBACK_NAMES  # then no proxy of the environment stands between
        try:
            async with (
                httpx.AsyncClient(timeout=FETCH_SECONDS, trust_env=not by_itself) as client,
                client.stream(method, address, headers={"accept": "application/json"}, **more) as answer,
            ):
                body = b""
                async for part in answer.aiter_bytes():
                    body += part
                    if len(body) > LARGEST_ANSWER:
                        raise LoginRefused(f"the provider's answer at {address} is too long")
            content = json.loads(body)
        except (httpx.HTTPError, ValueError, RecursionError) as error:
            log.warning("the provider does not answer at %s: %s", address, type(error).__name__)
            raise LoginRefused(f"the provider does not answer at {address}") from None
        if answer.status_code != 200 or not isinstance(content, dict):
            told = content.get("error") if isinstance(content, dict) else None
            log.warning("the provider answered %s at %s: %s", answer.status_code, address, told)
            raise LoginRefused(f"the provider refused: {str(told or answer.status_code)[:100]}")
        return content

    async def _claims(self, provider: _Provider, token: str) -> dict[str, Any]:
        try:
            header = jwt.get_unverified_header(token)
            algorithm = str(header.get("alg"))
            if algorithm not in self.rules.algorithms:
                raise LoginRefused("the token is signed by an algorithm that is not allowed")
            key = await provider.keys.find(str(header.get("kid", "")))
            if key is None or not fits(key, algorithm):
                raise LoginRefused("the token is signed with a key that the provider does not publish")
            claims: dict[str, Any] = jwt.decode(
                token,
                key.key,
                algorithms=[algorithm],
                audience=self.rules.client_id,
                issuer=self.rules.issuer,
                leeway=SKEW_SECONDS,
                options={"require": ["exp", "iat", "iss", "aud", "sub"]},
            )
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
            raise LoginRefused(f"the token does not count: {type(error).__name__}") from None
        others = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
        if len(others) > 1 and claims.get("azp") != self.rules.client_id:
            raise LoginRefused("the token was made for somebody else")
        return claims

    def _user(self, claims: Mapping[str, Any]) -> User:
        name = claims.get(self.rules.name_claim)
        if not isinstance(name, str) or not name.strip():
            raise LoginRefused(f"the token names nobody in {self.rules.name_claim}")
        role = role_for(self.rules.roles, _words(claims, self.rules.role_claim))
        if role is None:
            raise LoginRefused(f"{name[:100]} has no role here: nothing in {self.rules.role_claim} gives one")
        return User(name.strip()[:200], role, source=SOURCE)


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())


def _words(claims: Mapping[str, Any], path: str) -> list[str]:
    found: Any = claims.get(path)
    if found is None:
        found = claims
        for part in path.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
    if isinstance(found, str):
        return [found]
    return [word for word in found if isinstance(word, str)] if isinstance(found, list) else []
