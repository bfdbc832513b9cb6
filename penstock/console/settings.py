"""How a console is set up, and what must hold: off loopback nobody gets in without a login and TLS."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from pathlib import Path

from penstock.console.access import access_file
from penstock.console.access.guard import LOOPBACK
from penstock.operate.errors import ExitCode, UserError, usage_error

_BASE = re.compile(r"^(/[A-Za-z0-9._~-]+)+$")


@dataclass(frozen=True)
class ConsoleSettings:
    host: str = "127.0.0.1"
    port: int = 8080
    state_dir: Path = Path("penstock-console")
    base_path: str = ""
    host_names: tuple[str, ...] = ()
    certificate: Path | None = None
    key: Path | None = None
    insecure: bool = False
    users: Path | None = None
    policy: Path | None = None
    access: Path | None = None
    token: str | None = field(default=None, repr=False)
    connect_port: int | None = None

    def __post_init__(self) -> None:
        if self.base_path and not _BASE.match(self.base_path):
            raise usage_error(f"--base-path {self.base_path!r} is no path", "for example /kafka")
        if (self.certificate is None) != (self.key is None):
            raise usage_error("--certificate and --key belong together")
        for path in (self.certificate, self.key, self.policy, self.access):
            if path is not None and not path.is_file():
                raise UserError(f"there is no file {path}", code=ExitCode.NOT_FOUND)
        if self.on_loopback:
            return
        if self.certificate is None and not self.insecure:
            raise usage_error(
                f"off loopback ({self.host}) the console needs TLS",
                "--certificate FILE --key FILE; or --insecure if something before it does TLS",
            )
        if self.users is None and not access_file.load(self.access).has_logins:
            raise usage_error(
                f"off loopback ({self.host}) the console needs users",
                "--users FILE (`penstock console add-user` fills it), or --access FILE with [scram] or [oidc]",
            )

    @property
    def on_loopback(self) -> bool:
        if self.host in LOOPBACK:
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def secure(self) -> bool:
        return self.certificate is not None

    @property
    def allowed_hosts(self) -> frozenset[str]:
        names = {name.lower() for name in self.host_names}
        if self.on_loopback:
            names |= LOOPBACK
        if self.host not in ("0.0.0.0", "::"):
            names.add(f"[{self.host}]" if ":" in self.host else self.host.lower())
        return frozenset(names)

    @property
    def address(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.secure else 'http'}://{host}:{self.port}{self.base_path}/"
