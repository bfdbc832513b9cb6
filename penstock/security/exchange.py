"""What every SASL mechanism is to the rest: steps of bytes that end in a principal, or in a refusal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from penstock.security.principal import Principal

__all__ = ["Authenticated", "AuthenticationFailed", "Exchange", "Step"]


class AuthenticationFailed(Exception):
    """Refused. `args[0]` may be told to the client, `detail` goes to the log; neither holds a secret."""

    def __init__(self, message: str, detail: str = "", username: str = "") -> None:
        super().__init__(message)
        self.detail = detail
        self.username = username


@dataclass(frozen=True, slots=True)
class Authenticated:
    """Who it is, and until when that holds by itself (a token's end); `token_id` of a delegation token."""

    principal: Principal
    expires_at_ms: int | None = None
    token_id: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """What to send back, and the outcome when the exchange is over."""

    reply: bytes
    outcome: Authenticated | None = None


class Exchange(Protocol):
    async def step(self, data: bytes) -> Step:
        """The next message of the client; raises AuthenticationFailed."""
        ...
