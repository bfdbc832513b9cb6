"""What `penstock up --secure` makes: an authority, a certificate, a first administrator, and a profile to use them."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path

from penstock.operate import profiles
from penstock.operate.errors import ExitCode, UserError

MECHANISM = "SCRAM-SHA-512"
ADMIN, BROKER = "admin", "broker"
HOSTS = ("localhost", "127.0.0.1", "::1")


def prepare(data_dir: Path, port: int, settings: dict[str, str], profile: str) -> Path:
    """The broker's settings file. What is there from an earlier start is kept: certificates, passwords, users."""
    from penstock.security.certificates import write_private

    folder = data_dir.resolve() / "security"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    _certificates(folder)
    password_file = folder / "broker.password"
    if not password_file.exists():
        write_private(password_file, secrets.token_urlsafe(24).encode())
    broker_password = password_file.read_text()
    jaas = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    given = {
        **settings,
        "listeners": f"SASL_SSL://127.0.0.1:{port}",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "server.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "sasl.enabled.mechanisms": MECHANISM,
        "sasl.mechanism.inter.broker.protocol": MECHANISM,
        "sasl.jaas.config": f'{jaas} username="{BROKER}" password="{broker_password}";',
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{ADMIN};User:{BROKER}",
    }
    file = folder / "server.properties"
    write_private(file, "".join(f"{name}={_escaped(value)}\n" for name, value in given.items()).encode())
    _users_and_profile(folder, file, port, broker_password, profile)
    return file


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n")


def _certificates(folder: Path) -> None:
    from penstock.security.certificates import Authority, write_private

    if (folder / "server.pem").exists():
        return
    authority = Authority.create()
    write_private(folder / "ca.key", authority.key)
    (folder / "ca.pem").write_bytes(authority.certificate)
    write_private(folder / "server.pem", authority.issue("localhost", HOSTS).both)


def _users_and_profile(folder: Path, file: Path, port: int, broker_password: str, profile: str) -> None:
    """The administrator's password is made once and is nowhere but in the profile."""
    from penstock.base.settings import Settings, SettingsError
    from penstock.security.bootstrap import store_passwords

    try:
        settings = Settings.load(file)
    except SettingsError as error:
        raise UserError(str(error), code=ExitCode.USAGE) from error
    known = profiles.all_profiles()
    wanted = {
        "bootstrap.servers": f"127.0.0.1:{port}",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": MECHANISM,
        "sasl.username": ADMIN,
        "ssl.ca.location": str(folder / "ca.pem"),
    }
    passwords = {BROKER: broker_password}
    marker = folder / "admin.made"
    if not marker.exists() or "sasl.password" not in known.get(profile, {}):
        wanted["sasl.password"] = passwords[ADMIN] = secrets.token_urlsafe(24)
    else:
        wanted["sasl.password"] = known[profile]["sasl.password"]
    asyncio.run(store_passwords(settings, passwords, MECHANISM))
    marker.touch()
    if known.get(profile) != wanted:
        profiles.save({**known, profile: wanted})
