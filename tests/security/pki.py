"""Certificates for stories: one authority, and whatever it is asked to sign."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from penstock.security.certificates import Authority, write_private


@dataclass(frozen=True)
class Pki:
    """An authority, a server's certificate with its key, and a client's."""

    folder: Path
    authority: Authority

    @property
    def ca(self) -> str:
        return str(self.folder / "ca.pem")

    def issue(self, file: str, name: str, *hosts: str, organisation: str | None = None) -> str:
        issued = self.authority.issue(name, hosts, organisation=organisation)
        write_private(self.folder / file, issued.both)
        write_private(self.folder / f"{file}.key", issued.key)
        write_private(self.folder / f"{file}.crt", issued.certificate)
        return str(self.folder / file)

    def server_settings(self, file: str = "server.pem") -> dict[str, str]:
        path = self.folder / file
        if not path.exists():
            self.issue(file, "localhost", "localhost", "127.0.0.1")
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(path),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.ca,
        }
