"""Delegation tokens: what one is, who may renew it, and its secret, which no store keeps. Pure."""

from __future__ import annotations

import base64
import hmac
import json
from dataclasses import dataclass, replace

from penstock.base.outside_json import load_json
from penstock.protocol.errors import ErrorCode
from penstock.security.principal import Principal

__all__ = ["DelegationToken", "TokenProblem", "TokenRules", "token_secret"]


class TokenProblem(Exception):
    """Refused with one of Kafka's error codes."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


@dataclass(frozen=True, slots=True)
class DelegationToken:
    token_id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int

    def may_be_managed_by(self, principal: Principal) -> bool:
        return principal == self.owner or principal in self.renewers

    def is_over(self, now_ms: int) -> bool:
        return now_ms > min(self.expires_ms, self.max_ms)

    def encode(self) -> bytes:
        """As Kafka keeps it below /delegation_token/tokens."""
        return json.dumps(
            {
                "version": 3,
                "owner": str(self.owner),
                "tokenRequester": str(self.requester),
                "renewers": [str(renewer) for renewer in self.renewers],
                "issueTimestamp": str(self.issued_ms),
                "maxTimestamp": str(self.max_ms),
                "expirationTimestamp": str(self.expires_ms),
                "tokenId": self.token_id,
            }
        ).encode()

    @classmethod
    def decode(cls, data: bytes) -> DelegationToken:
        """Raises ValueError."""
        try:
            body = load_json(data)
            owner = Principal.parse(body["owner"])
            return cls(
                str(body["tokenId"]),
                owner,
                Principal.parse(body["tokenRequester"]) if "tokenRequester" in body else owner,
                tuple(Principal.parse(text) for text in body.get("renewers") or ()),
                int(body["issueTimestamp"]),
                int(body["expirationTimestamp"]),
                int(body["maxTimestamp"]),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a delegation token: {error!r}") from None


def token_secret(key: bytes, token_id: str) -> bytes:
    """Derived from delegation.token.secret.key, which all brokers share: whoever reads the store learns no secret."""
    return hmac.digest(key, token_id.encode(), "sha512")


def as_password(secret: bytes) -> str:
    """What clients give to SCRAM."""
    return base64.b64encode(secret).decode()


@dataclass(frozen=True, slots=True)
class TokenRules:
    """Lifetimes, and the three changes that a token can see."""

    max_lifetime_ms: int
    expiry_ms: int

    def new(
        self,
        token_id: str,
        owner: Principal,
        requester: Principal,
        renewers: tuple[Principal, ...],
        max_lifetime_ms: int,
        now_ms: int,
    ) -> DelegationToken:
        lifetime_ms = min(max_lifetime_ms, self.max_lifetime_ms) if max_lifetime_ms > 0 else self.max_lifetime_ms
        max_ms = now_ms + lifetime_ms
        return DelegationToken(
            token_id, owner, requester, renewers, now_ms, min(max_ms, now_ms + self.expiry_ms), max_ms
        )

    def renewed(self, token: DelegationToken, who: Principal, period_ms: int, now_ms: int) -> DelegationToken:
        self._check(token, who, now_ms)
        period_ms = period_ms if period_ms >= 0 else self.expiry_ms
        return replace(token, expires_ms=min(token.max_ms, now_ms + period_ms))

    def expired(self, token: DelegationToken, who: Principal, period_ms: int, now_ms: int) -> DelegationToken | None:
        """With another end; None: it ends now."""
        if period_ms < 0:
            if not token.may_be_managed_by(who):
                raise TokenProblem(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
            return None
        self._check(token, who, now_ms)
        return replace(token, expires_ms=min(token.max_ms, now_ms + period_ms))

    @staticmethod
    def _check(token: DelegationToken, who: Principal, now_ms: int) -> None:
        if not token.may_be_managed_by(who):
            raise TokenProblem(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
        if token.is_over(now_ms):
            raise TokenProblem(ErrorCode.DELEGATION_TOKEN_EXPIRED)
