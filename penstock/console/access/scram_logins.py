"""Logging in as a SCRAM user of the brokers: the brokers themselves say whether the password is right.

What such a user then asks, the console asks with the user's own credentials, so that ACLs hold.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Mapping

from penstock.client.errors import AuthenticationFailed, ClientError
from penstock.console.access.access_file import Scram, role_for
from penstock.console.access.users import User
from penstock.operate.errors import ExitCode, UserError, usage_error
from penstock.operate.session import Session

log = logging.getLogger(__name__)

SOURCE = "scram"
CHECK_SECONDS = 10.0  # how soon a user who was deleted, or has another password, is out
_NOT_THEIRS = ("sasl.jaas.config", "sasl.oauthbearer.token", "sasl.mechanisms")
_SASL = ("SASL_PLAINTEXT", "SASL_SSL")


class ScramLogins:
    """`base` are the properties with which the console itself reaches the cluster whose users these are."""

    def __init__(
        self,
        rules: Scram,
        cluster: str,
        base: Mapping[str, str],
        open_session: Callable[[Mapping[str, str]], Session],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rules, self._cluster, self._open, self._clock = rules, cluster, open_session, clock
        self._base = {name: value for name, value in {**base, **rules.properties}.items() if name not in _NOT_THEIRS}
        protocol = self._base.get("security.protocol", "PLAINTEXT").strip().upper()
        if protocol not in _SASL:
            raise usage_error(
                f"[scram]: {cluster} is reached by {protocol}, where nobody is asked for a password",
                "properties = {'bootstrap.servers' = …, 'security.protocol' = 'SASL_SSL'} names another listener",
            )
        self._lock = threading.Lock()
        self._checked: weakref.WeakKeyDictionary[User, float] = weakref.WeakKeyDictionary()
        self._gone: weakref.WeakSet[User] = weakref.WeakSet()

    def check(self, name: str, password: str) -> User | None:
        """The user, if the brokers let them in and a role is theirs. Blocks."""
        role = role_for(self._rules.roles, [name])
        for mechanism in self._rules.mechanisms:
            properties = self._properties(name, password, mechanism)
            if name and password and self._let_in(properties):
                return None if role is None else User(name, role, {self._cluster: properties}, source=SOURCE)
        return None

    def _properties(self, name: str, password: str, mechanism: str) -> dict[str, str]:
        return {**self._base, "sasl.mechanism": mechanism, "sasl.username": name, "sasl.password": password}

    def _let_in(self, properties: Mapping[str, str]) -> bool:
        session = self._open(properties)
        try:
            session.client.metadata([])
        except AuthenticationFailed:
            return False
        except ClientError as error:
            hint = "try again when the cluster answers"
            raise UserError(f"the brokers cannot be asked: {error}", hint, ExitCode.UNREACHABLE) from error
        finally:
            session.close()
        return True

    def is_current(self, user: User) -> bool:
        """Whether the brokers still let this user in, as of a few seconds ago: asked beside, nobody waits here."""
        with self._lock:
            if user in self._gone:
                return False
            now = self._clock()
            if now - self._checked.setdefault(user, now) >= CHECK_SECONDS:
                self._checked[user] = now
                threading.Thread(target=self._check_again, args=(user,), name="console-scram", daemon=True).start()
            return True

    def _check_again(self, user: User) -> None:
        try:
            if self._let_in(user.credentials[self._cluster]):
                return
        except UserError as error:
            log.info("whether %s is still a user cannot be asked: %s", user.name, error)
            return
        with self._lock:
            self._gone.add(user)
