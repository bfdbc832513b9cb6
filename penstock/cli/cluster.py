"""`penstock cluster`: ZooKeeper and several brokers on this machine, for development and tests."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import Set, insist_on_folder, parse_overrides
from penstock.cli.typed import local_command, new_app
from penstock.operate.errors import ExitCode, UserError

if TYPE_CHECKING:
    from penstock.cli.output import Output

app = new_app("Start, show and stop a cluster of several brokers on this machine.")

DataDir = Annotated[Path, typer.Option("--data-dir", help="Where all of it lives.")]
DEFAULT_DATA_DIR = Path("penstock-data/cluster")


@local_command(app)
def start(
    output: Output,
    brokers: Annotated[int, typer.Option("--brokers", "-n", min=1, help="How many.")] = 3,
    base_port: Annotated[
        int, typer.Option("--base-port", min=1, max=60_000, help="The first broker's; the others follow.")
    ] = 9092,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    set_: Set = None,
) -> None:
    """Start ZooKeeper and the brokers; returns when all of them serve."""
    from penstock.cluster import local
    from penstock.cluster.zookeeper_process import ZooKeeperUnavailable

    insist_on_folder(data_dir, "the data", "--data-dir")
    try:
        cluster = local.start(data_dir, brokers, base_port, settings=parse_overrides(set_))
    except (local.LocalClusterError, ZooKeeperUnavailable) as error:
        raise UserError(str(error)) from error
    output.result({"bootstrap": cluster.bootstrap, "brokers": brokers}, f"ready: {cluster.bootstrap}")


@local_command(app)
def status(output: Output, data_dir: DataDir = DEFAULT_DATA_DIR) -> None:
    """Show the processes of the cluster; exit code 7 when one does not run."""
    from penstock.cluster import local

    try:
        processes = local.status(data_dir)
    except local.LocalClusterError as error:
        raise UserError(str(error), "`penstock cluster start` makes one", ExitCode.NOT_FOUND) from error
    output.rows([asdict(process) for process in processes], ["name", "running", "pid", "address", "log"], right=["pid"])
    if not all(process.running for process in processes):
        raise typer.Exit(ExitCode.UNHEALTHY)


@local_command(app)
def stop(output: Output, data_dir: DataDir = DEFAULT_DATA_DIR) -> None:
    """Stop the brokers, then ZooKeeper. The data stays."""
    from penstock.cluster import local

    try:
        stopped = local.stop(data_dir)
    except local.LocalClusterError as error:
        raise UserError(str(error), "`penstock cluster start` makes one", ExitCode.NOT_FOUND) from error
    output.result({"stopped": stopped}, f"stopped: {', '.join(stopped) or 'nothing was running'}")
