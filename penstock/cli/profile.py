"""`penstock profile`: named clusters with their security settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import suggest
from penstock.cli.typed import local_command, new_app
from penstock.operate import profiles
from penstock.operate.client_properties import insist_on_known
from penstock.operate.errors import not_found, usage_error

if TYPE_CHECKING:
    from penstock.cli.output import Output

app = new_app("Named clusters with their security settings.")

Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False, autocompletion=suggest.profiles)]
# Whole settings that hold secrets in their text count too (sasl.jaas.config, sasl.oauthbearer.config).
SECRET_WORDS = ("password", "secret", "jaas", "pem", "token", "oauthbearer.config", "credential")


@local_command(app, "list")
def list_profiles(output: Output) -> None:
    """List profiles; `default` is used when none is named."""
    rows = [
        {
            "name": name,
            "bootstrap": properties.get("bootstrap.servers"),
            "security": properties.get("security.protocol", "PLAINTEXT"),
        }
        for name, properties in sorted(profiles.all_profiles().items())
    ]
    output.rows(
        rows, ["name", "bootstrap", "security"], empty="no profiles; `penstock profile set NAME KEY=VALUE…` makes one"
    )


@local_command(app)
def show(output: Output, name: Name) -> None:
    """Show a profile's properties; secrets stay hidden."""
    rows = [
        {"key": key, "value": "********" if any(word in key.lower() for word in SECRET_WORDS) else value}
        for key, value in sorted(profiles.load(name).items())
    ]
    output.rows(rows, ["key", "value"])


@local_command(app, "set")
def set_(
    output: Output, name: Name, pairs: Annotated[list[str], typer.Argument(metavar="KEY=VALUE…", show_default=False)]
) -> None:
    """Make or change a profile, e.g. bootstrap.servers=host:9092 security.protocol=SASL_SSL; KEY= removes one."""
    if not name.strip():
        raise usage_error("a profile needs a name", "for example penstock profile set staging bootstrap.servers=…")
    known = profiles.all_profiles()
    properties = known.setdefault(name, {})
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise usage_error(f"{pair!r} is not KEY=VALUE", "for example bootstrap.servers=localhost:9092")
        if value:
            insist_on_known([key], name)
            properties[key] = value
        else:
            properties.pop(key, None)
    profiles.save(known)
    output.result({"name": name, "keys": sorted(properties)}, f"profile {name} is kept in {profiles.path()}")


@local_command(app)
def delete(output: Output, name: Name) -> None:
    """Forget a profile."""
    known = profiles.all_profiles()
    if name not in known:
        raise not_found("profile", name, known)
    del known[name]
    profiles.save(known)
    output.result({"name": name, "deleted": True}, f"profile {name} deleted")
