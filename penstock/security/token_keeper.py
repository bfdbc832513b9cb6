"""The delegation tokens of a cluster as one broker knows them: kept in the store, followed by notifications."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import secrets
from collections.abc import Callable

from penstock.base.clock import Clock
from penstock.base.settings import Settings
from penstock.protocol.errors import ErrorCode
from penstock.security.principal import Principal
from penstock.security.scram import ScramCredential, make_credential
from penstock.security.tokens import DelegationToken, TokenProblem, TokenRules, as_password, token_secret
from penstock.store.interface import Create, MultiFailed, NoNode, Operation, SetData, StoreError, TreeStore
from penstock.store.subscriptions import ChildrenSubscription

__all__ = ["TokenKeeper"]

logger = logging.getLogger(__name__)

TOKENS = "/delegation_token/tokens"
CHANGES = "/delegation_token/token_changes"
MAX_TOKENS = 10_000
KEPT_NOTIFICATIONS = 100


class TokenKeeper:
    """`removed` is told the id of every token that is gone."""

    def __init__(self, store: TreeStore, settings: Settings, clock: Clock, removed: Callable[[str], None]) -> None:
        self._store = store
        self._clock = clock
        self._removed = removed
        self._key: bytes = settings["delegation.token.secret.key"].encode()
        self._check_s = settings["delegation.token.expiry.check.interval.ms"] / 1000
        self.rules = TokenRules(
            settings["delegation.token.max.lifetime.ms"], settings["delegation.token.expiry.time.ms"]
        )
        self.tokens: dict[str, DelegationToken] = {}
        self._subscription = ChildrenSubscription(store, CHANGES, self._notified)
        self._seen = ""
        self._work: asyncio.Queue[str] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []

    # --- life ---

    async def start(self) -> None:
        await self._store.ensure_paths([TOKENS, CHANGES])
        await self._subscription.start()
        for token_id in await self._store.children(TOKENS):
            await self._read(token_id)
        self._tasks = [asyncio.ensure_future(self._follow()), asyncio.ensure_future(self._sweep())]

    async def stop(self) -> None:
        await self._subscription.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _notified(self, names: list[str]) -> None:
        for name in names:
            if name > self._seen:
                self._seen = name
                self._work.put_nowait(name)

    async def _follow(self) -> None:
        while True:
            name = await self._work.get()
            try:
                await self._read((await self._store.get(f"{CHANGES}/{name}")).data.decode(errors="replace"))
            except NoNode:
                continue  # an old one, tidied away
            except StoreError as error:
                logger.warning("a change of delegation tokens is not read yet: %s", error)
                await asyncio.sleep(1)
                self._work.put_nowait(name)

    async def _read(self, token_id: str) -> None:
        try:
            self.tokens[token_id] = DelegationToken.decode((await self._store.get(f"{TOKENS}/{token_id}")).data)
        except NoNode:
            if self.tokens.pop(token_id, None) is not None:
                self._removed(token_id)
        except ValueError as error:
            logger.error("%s/%.50s: %s", TOKENS, token_id, error)

    async def _sweep(self) -> None:
        """What has ended goes, whichever broker looks first."""
        while True:
            await asyncio.sleep(self._check_s)
            now_ms = self._clock.now_ms()
            for token in [token for token in self.tokens.values() if token.is_over(now_ms)]:
                with contextlib.suppress(StoreError):
                    await self._delete(token.token_id)

    # --- what clients log in with ---

    def credential(self, mechanism: str, token_id: str) -> ScramCredential | None:
        if self.owner(token_id) is None:
            return None
        return make_credential(mechanism, as_password(self.secret(token_id)))

    def owner(self, token_id: str) -> tuple[Principal, int] | None:
        token = self.tokens.get(token_id)
        if token is None or token.is_over(self._clock.now_ms()):
            return None
        return token.owner, min(token.expires_ms, token.max_ms)

    def secret(self, token_id: str) -> bytes:
        return token_secret(self._key, token_id)

    def find(self, secret: bytes) -> DelegationToken:
        """By the secret that its holder shows; TokenProblem if it is nobody's."""
        for token in self.tokens.values():
            if hmac.compare_digest(self.secret(token.token_id), secret):
                return token
        raise TokenProblem(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)

    # --- changes ---

    async def create(
        self, owner: Principal, requester: Principal, renewers: tuple[Principal, ...], max_lifetime_ms: int
    ) -> DelegationToken:
        if len(self.tokens) >= MAX_TOKENS:
            raise TokenProblem(ErrorCode.POLICY_VIOLATION)
        token = self.rules.new(
            secrets.token_urlsafe(16), owner, requester, renewers, max_lifetime_ms, self._clock.now_ms()
        )
        await self._write(Create(f"{TOKENS}/{token.token_id}", token.encode()), token)
        return token

    async def renew(self, secret: bytes, who: Principal, period_ms: int) -> int:
        token = self.rules.renewed(self.find(secret), who, period_ms, self._clock.now_ms())
        await self._write(SetData(f"{TOKENS}/{token.token_id}", token.encode()), token)
        return token.expires_ms

    async def expire(self, secret: bytes, who: Principal, period_ms: int) -> int:
        now_ms = self._clock.now_ms()
        found = self.find(secret)
        token = self.rules.expired(found, who, period_ms, now_ms)
        if token is None:
            await self._delete(found.token_id)
            return now_ms
        await self._write(SetData(f"{TOKENS}/{token.token_id}", token.encode()), token)
        return token.expires_ms

    async def _write(self, operation: Operation, token: DelegationToken) -> None:
        try:
            await self._store.multi([operation, self._notification(token.token_id)])
        except MultiFailed as failed:
            if isinstance(failed.error, NoNode):
                raise TokenProblem(ErrorCode.DELEGATION_TOKEN_NOT_FOUND) from None
            raise failed.error from None
        self.tokens[token.token_id] = token
        await self._tidy()

    async def _delete(self, token_id: str) -> None:
        with contextlib.suppress(NoNode):
            await self._store.delete(f"{TOKENS}/{token_id}")
        if self.tokens.pop(token_id, None) is not None:
            self._removed(token_id)
        await self._store.multi([self._notification(token_id)])
        await self._tidy()

    @staticmethod
    def _notification(token_id: str) -> Create:
        return Create(f"{CHANGES}/token_change_", token_id.encode(), sequential=True)

    async def _tidy(self) -> None:
        names = await self._store.children(CHANGES)
        for name in names[:-KEPT_NOTIFICATIONS]:
            with contextlib.suppress(NoNode):
                await self._store.delete(f"{CHANGES}/{name}")
