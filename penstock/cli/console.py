"""`penstock console`: the web console in the foreground, for one cluster or several."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.options import insist_on_folder
from penstock.cli.typed import Bootstrap, Properties, new_app
from penstock.operate.errors import UserError, usage_error

app = new_app("The web console: see and steer a cluster in the browser.", no_args_is_help=False)

Profiles = Annotated[
    list[str] | None,
    typer.Option("--profile", "-p", metavar="NAME", help="A named cluster; repeat it for several.", show_default=False),
]


@app.callback(invoke_without_command=True)
def console(
    ctx: typer.Context,
    bootstrap: Bootstrap = None,
    profile: Profiles = None,
    properties: Properties = None,
    host: Annotated[str, typer.Option(help="Where to listen; off loopback it takes TLS and users.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535)] = 8080,
    state_dir: Annotated[
        Path, typer.Option(help="The console's own files: audit log, figures of foreign clusters.")
    ] = (Path("penstock-console")),
    base_path: Annotated[str, typer.Option(help="Behind a proxy: the path under which it is reached.")] = "",
    host_name: Annotated[
        list[str] | None, typer.Option("--host-name", help="A name under which browsers reach it; may be repeated.")
    ] = None,
    certificate: Annotated[Path | None, typer.Option(help="PEM file for TLS.")] = None,
    key: Annotated[Path | None, typer.Option(help="PEM file with its key.")] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="No TLS off loopback: a proxy before it does it.")
    ] = False,
    users: Annotated[Path | None, typer.Option(help="File of users; `console add-user` fills it.")] = None,
    policy: Annotated[Path | None, typer.Option(help="TOML file: which roles see which topics and fields.")] = None,
    access: Annotated[
        Path | None,
        typer.Option(
            help="TOML file: logins by the brokers' SCRAM users or OpenID Connect, a principal for each role."
        ),
    ] = None,
    connect_port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Also answer as Kafka Connect does, about pipelines; 8083 is its port."),
    ] = None,
) -> None:
    """Serve the console. Prints `ready: ADDRESS`; on loopback the address holds a token that logs in."""
    if ctx.invoked_subcommand is not None:
        return
    try:
        from penstock.console import server
        from penstock.console.cluster import Cluster, ConsoleSession, from_profiles
        from penstock.console.settings import ConsoleSettings
    except ImportError as error:
        raise UserError(
            f"the console needs {error.name}", "install it with: pip install 'penstock[console]'"
        ) from error
    from penstock.operate.session import Session

    settings = ConsoleSettings(
        host=host,
        port=port,
        state_dir=state_dir,
        base_path=base_path.rstrip("/"),
        host_names=tuple(host_name or ()),
        certificate=certificate,
        key=key,
        insecure=insecure,
        users=users,
        policy=policy,
        access=access,
        connect_port=connect_port,
        token=os.environ.get("PENSTOCK_CONSOLE_TOKEN") or None,
    )
    clusters = from_profiles(profile or [], state_dir)
    if bootstrap or properties or not clusters:
        here = Session(bootstrap, None, properties)
        clusters.insert(0, Cluster("local", ConsoleSession(here.properties), state_dir))
    for cluster in clusters:
        _ = cluster.session.client  # what no client can be made of is told before anything is served
    if len({cluster.name for cluster in clusters}) < len(clusters):
        raise usage_error("two clusters have the same name", "name each profile once")
    insist_on_folder(state_dir, "the console's files", "--state-dir", 0o700)
    server.run(settings, clusters, _say)


@app.command("add-user")
def add_user(
    file: Annotated[Path, typer.Argument(help="The file of users; made if it is not there.", show_default=False)],
    name: Annotated[str, typer.Argument(show_default=False)],
    role: Annotated[str, typer.Option(help="viewer, editor or admin.")] = "viewer",
) -> None:
    """Add a user, or change one's role and password. The password is asked for, or read from standard input."""
    from penstock.console.access import users

    if sys.stdin.isatty():
        password = typer.prompt("Password", hide_input=True, confirmation_prompt=True)
    else:
        password = sys.stdin.readline().rstrip("\n")
    users.add_user(file, name, role, password)
    _say(f"{name} is {role} in {file}")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
