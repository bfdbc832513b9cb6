"""Users with roles: a file of hashed passwords, one `name:role:hash` a line."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from penstock.operate.errors import ExitCode, UserError, usage_error

ROLES = ("viewer", "editor", "admin")
"""Each may what those before it may: look; change topics, groups and records; change the cluster and pipelines."""

_COST, _BLOCK, _LANES = 1 << 15, 8, 1
_MEMORY = 64 << 20
_NAME = re.compile(r"^[^\s:]{1,100}$")


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class User:
    """Somebody who got in: each time another one, who may go while the one of an earlier login stays."""

    name: str
    role: str
    credentials: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    """Cluster → client properties with the user's own credentials there."""
    stored: str = field(default="", repr=False)
    """The hash that the password was checked against: with another one the logins of before end."""
    source: str = "file"
    """Who knows this user: file, scram, oidc or token."""

    def may(self, role: str) -> bool:
        return ROLES.index(self.role) >= ROLES.index(role)


TOKEN_USER = User("local", "admin", source="token")
"""Whoever has the token that was printed at the start."""


def hash_password(password: str) -> str:
    salt = secrets.token_bytes(16)
    return "$".join(("scrypt", str(_COST), str(_BLOCK), str(_LANES), _text(salt), _text(_scrypt(password, salt))))


def matches(password: str, stored: str) -> bool:
    _, cost, block, lanes, salt, wanted = stored.split("$")
    found = _scrypt(password, base64.b64decode(salt), int(cost), int(block), int(lanes))
    return hmac.compare_digest(found, base64.b64decode(wanted))


def _scrypt(password: str, salt: bytes, cost: int = _COST, block: int = _BLOCK, lanes: int = _LANES) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, n=cost, r=block, p=lanes, maxmem=_MEMORY, dklen=32)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


_NOBODY = hash_password(secrets.token_hex(8))


class UserFile:
    """Read anew when it changes: whoever is removed, or gets another role or password, loses open logins too."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_at: tuple[float, int] | None = None
        self._users: dict[str, tuple[str, str]] = {}
        self._load()

    def knows(self, name: str) -> bool:
        self._load()
        return name in self._users

    def check(self, name: str, password: str) -> User | None:
        """The user, if the password is right. An unknown name takes as long as a wrong password."""
        self._load()
        role, stored = self._users.get(name, ("viewer", _NOBODY))
        if not matches(password, stored) or name not in self._users:
            return None
        return User(name, role, stored=stored)

    def is_current(self, user: User) -> bool:
        """Whether the file still says what it said when this user logged in."""
        try:
            self._load()
        except UserError:
            return False
        return self._users.get(user.name) == (user.role, user.stored)

    def _load(self) -> None:
        try:
            found = self._path.stat()
        except FileNotFoundError:
            raise UserError(
                f"there is no file of users {self._path}", "`penstock console add-user` makes one", ExitCode.NOT_FOUND
            ) from None
        state = (found.st_mtime, found.st_size)
        if state != self._read_at:
            self._users = parse(self._path.read_text(), str(self._path))
            self._read_at = state


def parse(text: str, where: str) -> dict[str, tuple[str, str]]:
    users = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = line.strip().split(":", 2)
        if len(parts) != 3 or parts[1] not in ROLES or not parts[2].startswith("scrypt$") or parts[2].count("$") != 5:
            raise usage_error(
                f"{where}, line {number}: not NAME:ROLE:HASH", "`penstock console add-user` writes such lines"
            )
        users[parts[0]] = (parts[1], parts[2])
    return users


def add_user(path: Path, name: str, role: str, password: str) -> None:
    """Add a user, or give one that is there a new role and password."""
    if role not in ROLES:
        raise usage_error(f"there is no role {role!r}", f"there is {', '.join(ROLES)}")
    if not _NAME.match(name):
        raise usage_error(f"{name!r} is no name for a user", "without spaces and colons")
    if len(password) < 8:
        raise usage_error("the password is too short", "8 characters or more")
    users = parse(path.read_text(), str(path)) if path.exists() else {}
    users[name] = (role, hash_password(password))
    lines = [f"{known}:{its_role}:{stored}\n" for known, (its_role, stored) in users.items()]
    with_new = path.with_name(path.name + ".new")
    descriptor = os.open(with_new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.writelines(lines)
    with_new.replace(path)
