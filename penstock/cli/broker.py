"""`penstock broker`: run one in the foreground; `broker list` and `broker describe` look at those of a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import admin
from penstock.cli.errors import ExitCode, UserError, not_found, usage_error
from penstock.cli.typed import command, new_app
from penstock.protocol import messages
from penstock.protocol.errors import error_name

if TYPE_CHECKING:
    from penstock.cli.session import Session

app = new_app("Run one broker in the foreground; list and describe brokers.", no_args_is_help=False)

Config = Annotated[
    Path | None, typer.Option("--config", "-c", help="A file in the format of Kafka's server.properties.")
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
    raise typer.Exit(server.run(settings))


@command(app, "list")
def list_brokers(session: Session) -> None:
    """List the live brokers and how much each holds and leads."""
    session.output.rows(
        broker_rows(session),
        ["id", "address", "rack", "controller", "leads", "replicas"],
        right=["id", "leads", "replicas"],
    )


def broker_rows(session: Session) -> list[dict[str, Any]]:
    view = admin.cluster(session)
    partitions = [p for t in view.topics.values() for p in t.partitions.values()]
    return [
        {
            "id": node,
            "address": f"{address.host}:{address.port}",
            "rack": address.rack,
            "controller": node == view.controller_id,
            "leads": sum(p.leader_id == node for p in partitions),
            "replicas": sum(node in p.replicas for p in partitions),
        }
        for node, address in sorted(view.brokers.items())
    ]


@command(app)
def describe(session: Session, node: Annotated[int, typer.Argument(metavar="ID", show_default=False)]) -> None:
    """Show a broker's log folders, their sizes, and its own settings."""
    rows = {row["id"]: row for row in broker_rows(session)}
    if node not in rows:
        raise not_found("broker", str(node), [str(known) for known in rows])
    api = messages.api("describe_log_dirs")
    answer = session.client.call_broker(node, "describe_log_dirs", api.Request(topics=None))
    folders = [
        {
            "folder": result.log_dir,
            "error": error_name(result.error_code) if result.error_code else None,
            "replicas": sum(len(t.partitions) for t in result.topics),
            "bytes": sum(p.partition_size for t in result.topics for p in t.partitions),
            "free_bytes": result.usable_bytes if result.usable_bytes >= 0 else None,
        }
        for result in answer.results
    ]
    configs = admin.describe_configs(session, admin.BROKER_RESOURCE, str(node), node)
    own = {c.name: c.value for c in configs if c.config_source != 5 and not c.is_sensitive}
    if session.output.as_json:
        session.output.record({**rows[node], "log_dirs": folders, "configs": own})
        return
    session.output.rows([rows[node]], ["id", "address", "rack", "controller", "leads", "replicas"])
    session.output.rows(
        folders, ["folder", "replicas", "bytes", "free_bytes", "error"], right=["replicas", "bytes", "free_bytes"]
    )
    session.output.rows([{"key": k, "value": v} for k, v in sorted(own.items())], ["key", "value"])
