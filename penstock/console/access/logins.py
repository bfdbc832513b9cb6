"""Logins: the start token, sessions behind cookies with an end, and the delay that failed tries cost."""

from __future__ import annotations

import asyncio
import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.console.access.users import User

COOKIE = "penstock_console"
SESSION_SECONDS = 12 * 3600.0
IDLE_SECONDS = 2 * 3600.0
MOST_SESSIONS = 10_000
FIRST_DELAY, LONGEST_DELAY = 0.5, 60.0
FREE_TRIES = 3


def _always(_user: User) -> bool:
    return True


@dataclass(slots=True)
class Login:
    """One user's session; pages hold it, so that what outlives a log-out can do nothing more."""

    id: str
    user: User
    ends: float
    used: float
    is_current: Callable[[User], bool] = _always
    closed: bool = False

    @property
    def over(self) -> bool:
        """Logged out, or no longer the user whom the login was given to."""
        return self.closed or not self.is_current(self.user)


@dataclass(slots=True)
class _Failures:
    until: float
    """When the next try is free; while there are only few, the time of the last one."""
    count: int = 0


@dataclass
class Logins:
    token: str
    clock: Callable[[], float] = time.monotonic
    is_current: Callable[[User], bool] = _always
    """Whether a user who logged in earlier is still known as that."""
    checking: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One password after the other: guesses side by side would all be free, and each takes 32 MB."""
    _sessions: dict[str, Login] = field(default_factory=dict)
    _failures: dict[str, _Failures] = field(default_factory=dict)

    def is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.token.encode())

    def open(self, user: User) -> Login:
        now = self.clock()
        self._forget_old(now)
        login = Login(secrets.token_urlsafe(32), user, now + SESSION_SECONDS, now, self.is_current)
        self._sessions[login.id] = login
        return login

    def find(self, session_id: str) -> Login | None:
        login = self._sessions.get(session_id)
        if login is None:
            return None
        now = self.clock()
        if self._is_over(login, now):
            self.close(session_id)
            return None
        login.used = now
        return login

    def still(self, login: Login) -> bool:
        """Whether an open page may go on with its login; asking counts as use, as a request does."""
        return self.find(login.id) is login if login.id else not login.over

    def end_if_due(self, login: Login) -> None:
        """An open page asks for nothing by itself that would find out."""
        if self.clock() >= login.ends:
            self.close(login.id)

    def close(self, session_id: str) -> None:
        login = self._sessions.pop(session_id, None)
        if login is not None:
            login.closed = True

    def _is_over(self, login: Login, now: float) -> bool:
        return login.over or now >= login.ends or now - login.used >= IDLE_SECONDS

    def _forget_old(self, now: float) -> None:
        for login in [login for login in self._sessions.values() if self._is_over(login, now)]:
            self.close(login.id)
        while len(self._sessions) >= MOST_SESSIONS:
            self.close(min(self._sessions.values(), key=lambda login: login.used).id)

    # --- failed tries

    def wait_seconds(self, *who: str) -> float:
        """How long these (a name, an address) have to wait before the next try."""
        now = self.clock()
        return max((self._failures[one].until - now for one in who if one in self._failures), default=0.0)

    def failed(self, *who: str) -> None:
        now = self.clock()
        for old in [one for one, state in self._failures.items() if now - state.until > 3600]:
            del self._failures[old]
        for one in who:
            state = self._failures.setdefault(one, _Failures(now))
            state.count += 1
            state.until = now
            if state.count >= FREE_TRIES:
                state.until += min(LONGEST_DELAY, FIRST_DELAY * 2 ** min(state.count - FREE_TRIES, 10))

    def succeeded(self, *who: str) -> None:
        for one in who:
            self._failures.pop(one, None)
