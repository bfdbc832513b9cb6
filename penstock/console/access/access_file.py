"""The file of `--access`: other ways to log in, and as whom the console asks brokers on behalf of each role.

[scram]                          # the brokers' own SCRAM users
mechanisms = ["SCRAM-SHA-512", "SCRAM-SHA-256"]
cluster = "prod"                 # whose users; the first cluster if absent
properties = {"bootstrap.servers" = "…", "security.protocol" = "SASL_SSL"}  # if the console itself gets in otherwise
roles = {admin = ["anna"], editor = ["ops-*"], viewer = ["*"]}

[oidc]
issuer = "https://id.example/realms/main"
client_id = "penstock"
client_secret_file = "secret"    # absent for a public client; PKCE is used in any case
redirect_uri = "https://console.example/login/oidc/callback"
name_claim = "preferred_username"
role_claim = "groups"            # a text or a list; dots lead into objects
roles = {admin = ["kafka-admins"], viewer = ["staff"]}

[[principal]]                    # whoever has no credentials of their own asks brokers as this
roles = ["viewer", "editor"]
clusters = ["prod"]              # all if absent
profile = "prod-console"         # or properties = {"sasl.username" = "…", "sasl.password" = "…"}

[runner]                         # editors may apply pipelines that use nothing else; absent: admins only
connectors = ["topic", "generator"]
secrets = ["env:PENSTOCK_REGISTRY_*"]
"""

from __future__ import annotations

import fnmatch
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from penstock.console.access.users import ROLES
from penstock.operate import profiles
from penstock.operate.client_properties import insist_on_known
from penstock.operate.errors import UserError, usage_error
from penstock.security.key_set import ALGORITHMS

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "::1")
Role = Literal["viewer", "editor", "admin"]
Patterns = dict[Role, list[str]]


def safe_address(address: str) -> str:
    """What tokens and codes are sent to: https, or http on this machine."""
    split = urlsplit(address)
    if not split.hostname or (split.scheme != "https" and (split.scheme, split.hostname) not in _LOCAL_HTTP):
        raise ValueError("an address begins with https:// (http:// only on this machine)")
    return address


_PROOFS = (
    "sasl.username", "sasl.jaas.config", "sasl.oauthbearer.token", "ssl.certificate.location", "ssl.keystore.location",
)  # fmt: skip
_LOCAL_HTTP = {("http", name) for name in LOOPBACK_NAMES}
Address = Annotated[str, AfterValidator(safe_address)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Scram(_Section):
    mechanisms: Annotated[list[Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]], Field(min_length=1)] = [
        "SCRAM-SHA-512",
        "SCRAM-SHA-256",
    ]
    cluster: str | None = None
    properties: dict[str, str] = {}
    roles: Patterns = {"viewer": ["*"]}


class Oidc(_Section):
    issuer: Address
    client_id: Annotated[str, Field(min_length=1)]
    client_secret_file: str | None = None
    redirect_uri: Address | None = None
    title: str = "single sign-on"
    scopes: list[str] = ["openid", "profile"]
    algorithms: Annotated[list[Literal[ALGORITHMS]], Field(min_length=1)] = ["RS256", "ES256"]  # type: ignore[valid-type]
    name_claim: str = "preferred_username"
    role_claim: str = "groups"
    roles: Patterns


class Principal(_Section):
    roles: Annotated[list[Role], Field(min_length=1)]
    clusters: list[str] = ["*"]
    profile: str | None = None
    properties: dict[str, str] = {}


class Runner(_Section):
    connectors: list[str] = []
    secrets: list[str] = []


class AccessFile(_Section):
    scram: Scram | None = None
    oidc: Oidc | None = None
    principal: list[Principal] = []
    runner: Runner | None = None


@dataclass(frozen=True)
class Access:
    """What the file says, with secrets and profiles looked up."""

    scram: Scram | None = None
    oidc: Oidc | None = None
    client_secret: str | None = field(default=None, repr=False)
    principals: tuple[tuple[Principal, Mapping[str, str]], ...] = field(default=(), repr=False)
    runner: Runner | None = None

    @property
    def has_logins(self) -> bool:
        return self.scram is not None or self.oidc is not None

    def principal_of(self, role: str, cluster: str) -> Mapping[str, str] | None:
        """Client properties with which the console asks a cluster for this role; None: with its own."""
        for rule, properties in self.principals:
            if role in rule.roles and any(fnmatch.fnmatchcase(cluster, pattern) for pattern in rule.clusters):
                return properties
        return None


def role_for(patterns: Patterns, names: list[str]) -> str | None:
    """The highest role that one of the names has; None: nobody who may come in."""
    for role in reversed(ROLES):
        for pattern in patterns.get(role, ()):  # type: ignore[call-overload]
            if any(fnmatch.fnmatchcase(name, pattern) for name in names):
                return role
    return None


def load(path: Path | None) -> Access:
    if path is None:
        return Access()
    try:
        content = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise usage_error(f"the access file {path} cannot be read: {error}") from error
    try:
        made = AccessFile.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise usage_error(f"{path}: {where}: {first['msg']}", "SECURITY.md shows what it may hold") from None
    if made.scram is not None:
        insist_on_known(made.scram.properties, f"{path}: [scram]")
    return Access(
        scram=made.scram,
        oidc=made.oidc,
        client_secret=_secret(path, made.oidc),
        principals=tuple((rule, _properties(path, rule)) for rule in made.principal),
        runner=made.runner,
    )


def _secret(path: Path, oidc: Oidc | None) -> str | None:
    if oidc is None or oidc.client_secret_file is None:
        return None
    file = path.parent / oidc.client_secret_file
    try:
        return file.read_text().strip()
    except OSError as error:
        raise usage_error(f"{path}: client_secret_file {file}: {error.strerror}") from error


def _properties(path: Path, rule: Principal) -> dict[str, str]:
    if (rule.profile is None) == (not rule.properties):
        raise usage_error(f"{path}: a principal has either profile or properties")
    found: dict[str, Any] = dict(rule.properties)
    if rule.profile is not None:
        try:
            found = profiles.load(rule.profile)
        except UserError as error:
            raise usage_error(f"{path}: {error.message}") from error
    insist_on_known(found, f"{path}: [[principal]]")
    if not any(name in found for name in _PROOFS):
        raise usage_error(f"{path}: a principal needs credentials", "sasl.username and sasl.password, or a certificate")
    return {name: value for name, value in found.items() if name != "bootstrap.servers"}
