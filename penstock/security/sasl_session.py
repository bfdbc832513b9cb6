"""The SASL side of one connection: which step is due, when it must be repeated, what may not change (KIP-368)."""

from __future__ import annotations

from collections.abc import Callable

from penstock.security.exchange import Authenticated, AuthenticationFailed, Exchange, Step

__all__ = ["IllegalState", "SaslSession"]

REAUTHENTICATION_PAUSE_SECONDS = 1.0
MAX_MESSAGE_BYTES = 32 * 1024  # whoever has not logged in yet gets nothing longer looked at


class IllegalState(Exception):
    """A request that does not belong here now (ILLEGAL_SASL_STATE)."""


class SaslSession:
    """`begin` for a handshake, `step` for each message; `outcome` is who was authenticated last."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._exchange: Exchange | None = None
        self._wanted = ""
        self.mechanism = ""
        self.outcome: Authenticated | None = None
        self.expires_at: float | None = None  # monotonic seconds
        self._authenticated_at = 0.0

    def begin(self, mechanism: str, exchange: Exchange) -> None:
        if self._exchange is not None:
            raise IllegalState("another exchange is under way")
        if self.outcome is not None:
            if self.expires_at is None:
                raise IllegalState("this session has no end, so that nobody authenticates again")
            if self._monotonic() - self._authenticated_at < REAUTHENTICATION_PAUSE_SECONDS:
                raise IllegalState("authenticating again is possible once a second")
            if mechanism != self.mechanism:
                raise AuthenticationFailed(
                    f"Authentication failed: Cannot change the mechanism during re-authentication from"
                    f" {self.mechanism} to {mechanism}"
                )
        self._wanted, self._exchange = mechanism, exchange

    async def step(self, data: bytes) -> Step:
        exchange = self._exchange
        if exchange is None:
            raise IllegalState("a handshake comes first")
        try:
            if len(data) > MAX_MESSAGE_BYTES:
                raise AuthenticationFailed("Authentication failed: the message is too long", f"{len(data)} bytes")
            step = await exchange.step(data)
        except AuthenticationFailed:
            self._exchange = None  # one guess: what stands behind it in the pipe belongs to no exchange
            raise
        if step.outcome is not None:
            known = self.outcome
            if known is not None and known.principal != step.outcome.principal:
                raise AuthenticationFailed(
                    "Authentication failed: Cannot change principals during re-authentication from"
                    f" {known.principal} to {step.outcome.principal}"
                )
            self.mechanism, self.outcome, self._exchange = self._wanted, step.outcome, None
            self._authenticated_at = self._monotonic()
        return step

    def lasts(self, lifetime_ms: int) -> None:
        self.expires_at = self._monotonic() + lifetime_ms / 1000 if lifetime_ms > 0 else None

    @property
    def expired(self) -> bool:
        return self.expires_at is not None and self._monotonic() > self.expires_at
