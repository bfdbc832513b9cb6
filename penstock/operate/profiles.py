"""Named clusters with their security settings, kept in the user's configuration folder as TOML."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from penstock.operate.errors import ExitCode, UserError, not_found


def path() -> Path:
    configured = os.environ.get("PENSTOCK_CONFIG")
    if configured:
        return Path(configured)
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "penstock" / "profiles.toml"


def all_profiles() -> dict[str, dict[str, str]]:
    source = path()
    try:
        text = source.read_text()
    except FileNotFoundError:
        return {}
    import tomllib  # its patterns take a while to compile, and help needs none

    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{source} is not valid TOML: {error}", "repair or remove the file") from error
    return {
        name: {key: str(value) for key, value in section.items()}
        for name, section in content.items()
        if isinstance(section, dict)
    }


def load(name: str | None) -> dict[str, str]:
    """The properties of a profile; of the one named "default" if none is asked for and there is one."""
    profiles = all_profiles()
    if name is None:
        return profiles.get("default", {})
    if name not in profiles and name.lstrip("-").isdigit():
        hint = "-p names a profile; a partition is --partition N, their number at creation --partitions N"
        raise UserError(f"there is no profile {name!r}", hint, ExitCode.NOT_FOUND)
    if name not in profiles:
        raise not_found("profile", name, profiles)
    return profiles[name]


def save(profiles: dict[str, dict[str, str]]) -> None:
    target = path().resolve()  # it may be a link into somebody's collection of such files
    target.parent.mkdir(parents=True, exist_ok=True)
    lines = []
    for name, properties in sorted(profiles.items()):
        lines.append(f"[{json.dumps(name)}]")
        lines += [f"{json.dumps(key)} = {json.dumps(value)}" for key, value in sorted(properties.items())]
        lines.append("")
    try:
        # Profiles hold passwords: nobody else may read them, from the first byte on. A full disk costs none of them.
        descriptor, fresh = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write("\n".join(lines))
            Path(fresh).replace(target)
        except OSError:
            Path(fresh).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UserError(f"cannot write {target}: {error.strerror}", code=ExitCode.FAILED) from error
