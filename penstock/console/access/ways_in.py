"""All ways to log in together: the printed token, the file of users, the brokers' SCRAM users, OpenID Connect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.console.access import oidc, scram_logins
from penstock.console.access.access_file import Access
from penstock.console.access.logins import Logins
from penstock.console.access.oidc import OidcLogins
from penstock.console.access.scram_logins import ScramLogins
from penstock.console.access.users import TOKEN_USER, User, UserFile


@dataclass(frozen=True)
class WaysIn:
    access: Access = field(default_factory=Access)
    users: UserFile | None = None
    scram: ScramLogins | None = None
    oidc: OidcLogins | None = None

    @property
    def only_token(self) -> bool:
        return self.users is None and self.scram is None and self.oidc is None

    @property
    def takes_passwords(self) -> bool:
        return self.users is not None or self.scram is not None

    def check(self, logins: Logins, name: str, password: str) -> User | None:
        """Who it is; None for a wrong name or password. The file of users comes first. Blocks."""
        if self.only_token:
            return TOKEN_USER if logins.is_token(password) else None
        if self.users is not None and (self.scram is None or self.users.knows(name)):
            return self.users.check(name, password)
        return self.scram.check(name, password) if self.scram is not None else None

    def is_current(self, user: User) -> bool:
        """Whether somebody who got in earlier would still be that."""
        if user.source == scram_logins.SOURCE:
            return self.scram is not None and self.scram.is_current(user)
        if user.source == oidc.SOURCE:
            return self.oidc is not None and self.oidc.is_current(user)
        return user is TOKEN_USER or (self.users is not None and self.users.is_current(user))

    def credentials(self, user: User, cluster: str) -> Mapping[str, str] | None:
        """With which the brokers of a cluster are asked for this user; None: with the console's own."""
        return user.credentials.get(cluster) or self.access.principal_of(user.role, cluster)
