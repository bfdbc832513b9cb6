"""`penstock broker`: run one in the foreground; `broker list` and `broker describe` look at those of a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.errors import ExitCode, UserError, usage_error
from penstock.cli.typed import new_app

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
