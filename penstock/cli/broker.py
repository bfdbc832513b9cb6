"""`penstock broker`: run one in the foreground; `broker list` and `broker describe` look at those of a cluster."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.typed import command, new_app
from penstock.operate import admin
from penstock.operate.brokers import broker_rows, known_broker, log_folders
from penstock.operate.errors import ExitCode, UserError, usage_error

if TYPE_CHECKING:
    from penstock.base.settings import Settings
    from penstock.cli.session import Session

app = new_app("Run one broker in the foreground; list and describe brokers.", no_args_is_help=False)

Config = Annotated[
    Path | None,
    typer.Option("--config", "-c", metavar="FILE", help="A file in the format of Kafka's server.properties."),
]
Set = Annotated[
    list[str] | None, typer.Option("--set", "-s", metavar="NAME=VALUE", help="One setting; may be repeated.")
]


def parse_overrides(pairs: list[str] | None) -> dict[str, str]:
    overrides = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise usage_error(f"--set {pair!r} is not NAME=VALUE", "for example --set log.retention.hours=24")
        overrides[name.strip()] = value.strip()
    return overrides


@app.callback(invoke_without_command=True)
def broker(ctx: typer.Context, config: Config = None, set_: Set = None) -> None:
    """Run one broker in the foreground. Prints `ready: <listeners>` when it serves; Ctrl-C or SIGTERM stops it."""
    if ctx.invoked_subcommand is not None:
        return
    from penstock.base.settings import Settings, SettingsError
    from penstock.broker import server

    if config is not None and not config.is_file():
        raise UserError(
            f"there is no file {config}", "--config names a file like Kafka's server.properties", ExitCode.NOT_FOUND
        )
    try:
        settings = Settings.load(config, parse_overrides(set_))
    except SettingsError as error:
        raise UserError(str(error), "docs/configuration.md lists every setting", ExitCode.USAGE) from error
    _warn_of_strangers(settings)
    raise typer.Exit(server.run(settings))


def _warn_of_strangers(settings: Settings) -> None:
    """Kafka listens on all addresses by default, and so may we: but nobody should learn it from a stranger."""
    everywhere = [listener for listener in settings.listeners if listener.host in ("", "0.0.0.0", "::")]
    for listener in everywhere:
        guards = [word for word, there in (("TLS", listener.tls), ("SASL", listener.sasl)) if there]
        if settings["authorizer.class.name"]:
            guards.append("ACLs")
        protection = " and ".join(guards) if guards else "nothing: anyone who reaches it may read and write"
        print(
            f"penstock: {listener.name} listens on all addresses, port {listener.port}, protected by {protection}",
            file=sys.stderr,
            flush=True,
        )


@command(app, "list")
def list_brokers(session: Session) -> None:
    """List the live brokers and how much each holds and leads."""
    session.output.rows(
        broker_rows(session),
        ["id", "address", "rack", "controller", "leads", "replicas"],
        right=["id", "leads", "replicas"],
    )


@command(app)
def describe(session: Session, node: Annotated[int, typer.Argument(metavar="ID", show_default=False)]) -> None:
    """Show a broker's log folders, their sizes, and its own settings."""
    row = known_broker(session, node)
    folders = log_folders(session, node)
    configs = admin.describe_configs(session, admin.BROKER_RESOURCE, str(node), node)
    own = {c.name: c.value for c in configs if c.config_source != 5 and not c.is_sensitive}
    if session.output.as_json:
        session.output.record({**row, "log_dirs": folders, "configs": own})
        return
    session.output.rows([row], ["id", "address", "rack", "controller", "leads", "replicas"])
    session.output.rows(
        folders, ["folder", "replicas", "bytes", "free_bytes", "error"], right=["replicas", "bytes", "free_bytes"]
    )
    session.output.rows([{"key": k, "value": v} for k, v in sorted(own.items())], ["key", "value"])
