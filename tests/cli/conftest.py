"""A broker for the whole folder and the command as a user runs it: a real process with real pipes."""

from __future__ import annotations

import io
import os
import shlex
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import penstock
from penstock.cli import main

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[penstock.Broker]:
    folder = tmp_path_factory.mktemp("cli-broker")
    with penstock.Broker(folder, settings={"group.initial.rebalance.delay.ms": "0", "num.partitions": "2"}) as running:
        yield running


@pytest.fixture
def environment(broker: penstock.Broker, tmp_path: Path) -> dict[str, str]:
    """What the shell of a user has: the command on PATH, a home of its own, and where the cluster is."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {
        **os.environ,
        "PATH": path,
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "PENSTOCK_BOOTSTRAP": broker.bootstrap,
        "COLUMNS": "80",
    }


@pytest.fixture
def run(environment: dict[str, str], tmp_path: Path) -> Run:
    """`run("topic list --json")` through a shell, in an empty folder."""

    def call(line: str, stdin: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [
                "bash",
                "-o",
                "pipefail",
                "-c",
                line if line.startswith("penstock") or "|" in line else f"penstock {line}",
            ],
            input=stdin or "",
            capture_output=True,
            text=True,
            env=environment,
            cwd=tmp_path,
            timeout=120,
        )
        assert not check or done.returncode == 0, f"{line}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    return call


@pytest.fixture
def call(
    environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """As `run`, but in this process and without a shell: for what does not depend on pipes, signals or the start."""

    def here(line: str, stdin: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        for name in ("PENSTOCK_BOOTSTRAP", "HOME", "XDG_CONFIG_HOME", "COLUMNS"):
            monkeypatch.setenv(name, environment[name])
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((stdin or "").encode())))
        capsys.readouterr()
        code = main.run(shlex.split(line))
        shown = capsys.readouterr()
        assert not check or code == 0, f"{line}: exit {code}\n{shown.out}\n{shown.err}"
        return subprocess.CompletedProcess(line, code, shown.out, shown.err)

    return here


@pytest.fixture
def topic(call: Run) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    call(f"topic create {name} --partitions 1")
    return name
