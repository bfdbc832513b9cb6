"""`penstock broker`: run one in the foreground; `broker list` and `broker describe` look at those of a cluster."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import MOST_CORES, Config, Set, parse_overrides
from penstock.cli.typed import command, new_app
from penstock.operate import admin
from penstock.operate.brokers import broker_rows, known_broker, log_folders
from penstock.operate.errors import ExitCode, UserError
from penstock.operate.machines import machines

if TYPE_CHECKING:
    from penstock.base.settings import Settings
    from penstock.cli.session import Session
    from penstock.cli.supervisor import Part

app = new_app("Run one broker in the foreground; list and describe brokers.", no_args_is_help=False)

Cores = Annotated[
    int | None,
    typer.Option(
        "--cores",
        min=1,
        max=MOST_CORES,
        metavar="N",
        help="Run N brokers with ids, ports and folders that follow each other; `${core}` is each one's number.",
        show_default=False,
    ),
]
Core = Annotated[int | None, typer.Option("--core", min=0, max=MOST_CORES - 1, hidden=True)]


@app.callback(invoke_without_command=True)
def broker(
    ctx: typer.Context, config: Config = None, set_: Set = None, cores_: Cores = None, core: Core = None
) -> None:
    """Run one broker in the foreground. Prints `ready: <listeners>` when it serves; Ctrl-C or SIGTERM stops it."""
    if ctx.invoked_subcommand is not None:
        return
    from penstock.base.settings import Settings, SettingsError
    from penstock.base.settings.settings import given_texts
    from penstock.broker import server
    from penstock.cli import cores

    if config is not None and not config.is_file():
        raise UserError(
            f"there is no file {config}", "--config names a file like Kafka's server.properties", ExitCode.NOT_FOUND
        )
    try:
        given = given_texts(config, parse_overrides(set_))
        if cores_ is not None:
            Settings(cores.settings_of_core(given, 0))
            cores.check(given, cores_)
            raise typer.Exit(_run_cores(cores_, config, set_))
        settings = Settings.from_texts(given if core is None else cores.settings_of_core(given, core))
    except SettingsError as error:
        raise UserError(str(error), "docs/configuration.md lists every setting", ExitCode.USAGE) from error
    _warn_of_strangers(settings)
    raise typer.Exit(server.run(settings))


def core_parts(count: int, config: Path | None, set_: list[str] | None) -> list[Part]:
    """One part a broker; each reads the same file and makes of it what its number asks for."""
    from penstock.cli.supervisor import Part

    words = [word for pair in set_ or [] for word in ("--set", pair)]
    if config is not None:
        words += ["--config", str(config)]
    command = [sys.executable, "-m", "penstock.cli.main", "broker", *words]
    return [Part(f"broker {core}", [*command, "--core", str(core)], ready_prefix="ready:") for core in range(count)]


def _run_cores(count: int, config: Path | None, set_: list[str] | None) -> int:
    import asyncio

    from penstock.cli.supervisor import Supervisor

    def say(line: str) -> None:
        print(line, flush=True)

    def ready() -> None:
        say("ready: " + ", ".join(part.ready_line.removeprefix("ready:").strip() for part in parts))

    parts = core_parts(count, config, set_)
    return asyncio.run(Supervisor(say).run(parts, ready))


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
    rows = broker_rows(session)
    machine_of = machines(session)
    for row in rows:
        row["machine"] = machine_of.get(row["id"])
    columns = ["id", "address", "rack", *(["machine"] if machine_of else []), "controller", "leads", "replicas"]
    session.output.rows(rows, columns, right=["id", "leads", "replicas"])


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
