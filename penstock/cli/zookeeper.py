"""`penstock zookeeper`: a real ZooKeeper in the foreground, from the jars that PySpark brings."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from penstock.cli.options import insist_on_folder
from penstock.cli.typed import new_app
from penstock.operate.errors import UserError, usage_error

app = new_app("Run a real ZooKeeper for clusters on this machine.", no_args_is_help=False)


@app.command()
def zookeeper(
    data_dir: Annotated[Path, typer.Option("--data-dir", help="Where its data lives.")] = Path(
        "penstock-data/zookeeper"
    ),
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Port for clients.")] = 2181,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    server_id: Annotated[int, typer.Option("--id", help="This server's number in an ensemble.")] = 1,
    ensemble: Annotated[
        list[str] | None,
        typer.Option(
            "--server", metavar="ID=HOST:PEER_PORT:ELECTION_PORT", help="Each server of an ensemble; repeat it."
        ),
    ] = None,
) -> None:
    """Run a ZooKeeper server in the foreground. Prints `ready: HOST:PORT` when it serves; Ctrl-C stops it."""
    from penstock.cluster.zookeeper_process import EnsembleMember, ZooKeeperProcess, ZooKeeperUnavailable

    try:
        members = [EnsembleMember.parse(text) for text in ensemble or []]
    except ValueError as error:
        raise usage_error(str(error), "for example --server 1=10.0.0.1:2888:3888") from error
    if members and server_id not in {member.server_id for member in members}:
        raise usage_error(f"--id {server_id} is none of the servers", "name this server with --server too")
    insist_on_folder(data_dir, "the data", "--data-dir")
    server = ZooKeeperProcess(data_dir, port, host=host, server_id=server_id, ensemble=members)

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    try:
        server.start(wait=not members)  # one of an ensemble serves only when the others are there
        sys.stdout.write(f"ready: {server.connect}\n")
        sys.stdout.flush()
        assert server.process is not None
        code = server.process.wait()
    except ZooKeeperUnavailable as error:
        raise UserError(str(error)) from error
    except KeyboardInterrupt:
        code = 0
    finally:
        server.stop()
    raise typer.Exit(code)
