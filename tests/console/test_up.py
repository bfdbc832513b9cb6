"""The console as part of `penstock up`: its address is the first line after `ready`; a taken port costs only it."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import httpx
from console_world import stop

from penstock.testing.ports import free_port


def _up(folder: Path, console_port: int) -> tuple[subprocess.Popen[str], list[str]]:
    """`penstock up` until it has said all that it says at the start."""
    ports = ["--port", str(free_port()), "--metrics-port", str(free_port()), "--console-port", str(console_port)]
    command = [sys.executable, "-m", "penstock.cli.main", "up", "--no-pipelines", "--data-dir", "data", *ports]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder)
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if "penstock consume" in line:
            break
    return process, lines


def test_its_address_is_the_first_line_after_ready(tmp_path: Path) -> None:
    process, lines = _up(tmp_path, free_port())
    try:
        ready = next(number for number, line in enumerate(lines) if line.startswith("ready:"))
        name, address = lines[ready + 1].split()
        assert name == "console" and "?token=" in address
        assert httpx.get(address, timeout=60).headers["location"] == "/"
    finally:
        stop(process)


def test_a_taken_port_costs_the_console_and_not_the_broker(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        process, lines = _up(tmp_path, taken.getsockname()[1])
        try:
            assert any(line.startswith("no console:") for line in lines)
            assert any(line.startswith("ready:") for line in lines)
        finally:
            stop(process)
