"""`penstock up`: a broker with its data under ./penstock-data, metrics, console and pipelines, in one terminal."""

from __future__ import annotations

import asyncio
import importlib.util
import socket
import sys
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.options import MOST_CORES, Set, insist_on_folder, parse_overrides
from penstock.cli.supervisor import Part, Supervisor
from penstock.cli.typed import new_app
from penstock.operate.errors import ExitCode, UserError
from penstock.operate.session import DEFAULT_BOOTSTRAP

app = new_app("Start a broker on this machine, with everything that belongs to it.", no_args_is_help=False)

Port = Annotated[int, typer.Option(min=1, max=65535, metavar="PORT", help="Port for Kafka clients, on 127.0.0.1.")]
MetricsPort = Annotated[
    int, typer.Option(min=1, max=65535, metavar="PORT", help="Port for /metrics, /health and /ready.")
]
DataDir = Annotated[Path, typer.Option(metavar="FOLDER", help="Where all data lives.")]
Demo = Annotated[bool, typer.Option("--demo", help="Also run the demo: orders, payments and a pipeline over them.")]
ConsolePort = Annotated[int, typer.Option(min=1, max=65535, metavar="PORT", help="Port for the web console.")]
Console = Annotated[bool, typer.Option("--console/--no-console", help="Serve the web console.")]
Secure = Annotated[
    bool, typer.Option("--secure", help="With TLS, a first administrator and ACLs; makes a profile to use it with.")
]
ProfileName = Annotated[str, typer.Option("--profile", metavar="NAME", help="Name of the profile that --secure makes.")]
UpCores = Annotated[
    int,
    typer.Option(
        "--cores",
        min=1,
        max=MOST_CORES,
        metavar="N",
        help="Start N brokers, one a core, on ports that follow each other, and a ZooKeeper for them to meet at.",
    ),
]
Pipelines = Annotated[bool, typer.Option("--pipelines/--no-pipelines", help="Run applied pipelines (needs Spark).")]


@app.command()
def up(
    port: Port = 9092,
    metrics_port: MetricsPort = 9644,
    console_port: ConsolePort = 8080,
    data_dir: DataDir = Path("penstock-data"),
    demo: Demo = False,
    pipelines: Pipelines = True,
    console: Console = True,
    secure: Secure = False,
    profile: ProfileName = "secure",
    cores_: UpCores = 1,
    set_: Set = None,
) -> None:
    """Start a broker on 127.0.0.1:9092 with its data under ./penstock-data. Ctrl-C stops everything in order."""
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "log.dirs": str(data_dir / "broker"),
        "penstock.metrics.listener": f"http://127.0.0.1:{metrics_port}",
        "penstock.log.level": "warning",  # what stands in a terminal is for its reader
        **parse_overrides(set_),
    }
    host, port = _first_listener(settings["listeners"])
    for core in range(cores_):
        for number, what in ((port + core, "--port"), (metrics_port + core, "--metrics-port")):
            _insist_on_free(number, what)
    insist_on_folder(data_dir, "the data", "--data-dir")
    has_spark = importlib.util.find_spec("pyspark") is not None
    if demo and not has_spark:
        raise UserError("the demo needs Spark", "install it with: pip install 'penstock[spark]'")
    bootstrap = f"{host}:{port}"
    there = ["-b", bootstrap]
    arguments = _sets(settings)
    if secure:
        if demo:
            raise UserError("the demo knows no passwords", "leave out --demo or --secure", ExitCode.USAGE)
        from penstock.cli.secure_start import prepare

        # A file and not the command line, which every process of the machine can read.
        arguments = ["--config", str(prepare(data_dir, port, settings, profile))]
        there = ["-p", profile]
    parts = _brokers(cores_, data_dir, port, settings, arguments, secure)
    console_part = _console(there, console_port, data_dir / "console") if console else None
    if console_part is not None:
        parts.append(console_part)
    if pipelines and has_spark:
        runner = _penstock("pipeline", "runner", *there, "--state-dir", str(data_dir / "pipelines"))
        parts.append(Part("pipelines", runner, ready_prefix="ready:", required=False))
    if demo:
        folder = str(data_dir / "demo")
        command = [sys.executable, "-m", "penstock.pipelines.demo", "--bootstrap", bootstrap, "--folder", folder]
        parts.append(Part("demo", command, ready_prefix="ready:", required=False))
    raise typer.Exit(
        asyncio.run(
            Supervisor(_say).run(
                parts, lambda: _welcome(bootstrap, metrics_port, demo, console_part, profile if secure else None)
            )
        )
    )


def _brokers(
    count: int, data_dir: Path, port: int, settings: dict[str, str], arguments: list[str], secure: bool
) -> list[Part]:
    """One broker with its embedded store; or, once there have been several, those and the ZooKeeper they meet at."""
    folder = data_dir / "zookeeper"
    if count == 1 and not folder.exists():
        return [Part("broker", _penstock("broker", *arguments), ready_prefix="ready:")]
    if secure:
        raise UserError(
            "--secure prepares one broker", "leave out --cores, or write a file for `penstock broker --cores`"
        )
    from penstock.base.settings.table import EMBEDDED_DEFAULTS
    from penstock.cli import cores
    from penstock.cli.broker import core_parts

    parts = []
    settings = {**{name: str(value).lower() for name, value in EMBEDDED_DEFAULTS.items()}, **settings}
    if "zookeeper.connect" not in settings:
        server = f"127.0.0.1:{port + 1000}"
        old_store = data_dir / "broker" / "penstock.db"
        if old_store.exists():
            migrate = f"penstock store migrate --to zookeeper --connect {server} --set log.dirs={old_store.parent}"
            raise UserError(
                f"{old_store} holds what one broker knows; several need ZooKeeper",
                f"run `penstock zookeeper --data-dir {folder} --port {port + 1000}` in another terminal, then "
                f"`{migrate}`, stop the first one and repeat this",
                ExitCode.REFUSED,
            )
        _insist_on_free(port + 1000, "--port (ZooKeeper takes the one 1000 above)")
        words = ("--data-dir", str(folder), "--port", str(port + 1000))
        parts.append(Part("zookeeper", _penstock("zookeeper", *words), ready_prefix="ready:"))
        settings["zookeeper.connect"] = server
    cores.check(settings, count)
    return parts + core_parts(count, None, [f"{name}={value}" for name, value in settings.items()])


def _console(there: list[str], port: int, state_dir: Path) -> Part | None:
    """Its absence, or a taken port, costs the console and nothing else."""
    if importlib.util.find_spec("nicegui") is None:
        _say("no console: install it with pip install 'penstock[console]'")
        return None
    try:
        _insist_on_free(port, "--console-port")
    except UserError as error:
        _say(f"no console: {error.message}; --console-port takes another")
        return None
    command = _penstock("console", *there, "--port", str(port), "--state-dir", str(state_dir))
    return Part("console", command, ready_prefix="ready:", required=False)


def _first_listener(text: str) -> tuple[str, int]:
    """Where clients on this machine find the broker: the address of its first listener."""
    host, _, port = text.split(",")[0].partition("://")[2].rpartition(":")
    if not port.isdigit() or not 0 < int(port) < 65536:
        raise UserError(f"listeners={text} names no port", "for example PLAINTEXT://127.0.0.1:9092", ExitCode.USAGE)
    return ("127.0.0.1" if host in ("", "0.0.0.0", "[::]") else host), int(port)


def _penstock(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "penstock.cli.main", *arguments]


def _sets(settings: dict[str, str]) -> list[str]:
    return [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]


def _insist_on_free(port: int, option: str) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            hint = f"is Penstock up already? Otherwise take another with {option}"
            raise UserError(f"port {port} is taken", hint, ExitCode.FAILED) from error


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _welcome(bootstrap: str, metrics_port: int, demo: bool, console: Part | None, profile: str | None) -> None:
    _say(f"ready: {bootstrap}")
    if console is not None and console.ready_line:
        _say(f"  console      {console.ready_line.removeprefix('ready:').strip()}")
    _say(f"  metrics      http://127.0.0.1:{metrics_port}/metrics")
    there = "" if bootstrap == DEFAULT_BOOTSTRAP else f" -b {bootstrap}"
    if profile is not None:
        there = f" -p {profile}"
        _say(f"  profile      {profile}: TLS, user admin; its password is in the profile and nowhere else")
    _say(f"  try          echo hello | penstock produce greetings{there}")
    _say(f"               penstock consume greetings --from-beginning --until-end{there}")
    if demo:
        _say(f"  demo         penstock consume demo.revenue --from-beginning{there}; penstock pipeline status{there}")
