"""`penstock up` and its parts: nobody outlives it, and what is not needed holds nothing up."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.cli.supervisor import Part, Supervisor
from penstock.testing.ports import free_port


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP, signal.SIGTERM])
def test_the_broker_ends_with_the_command_that_started_it(
    number: signal.Signals, environment: dict[str, str], tmp_path: Path
) -> None:
    port = free_port()
    up = subprocess.Popen(
        [sys.executable, "-m", "penstock.cli.main", "up", "--port", str(port), "--metrics-port", str(free_port()),
         "--data-dir", str(tmp_path / "data"), "--no-pipelines", "--no-console"],
        stdout=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    assert up.stdout is not None
    try:
        assert up.stdout.readline() == f"ready: 127.0.0.1:{port}\n"
        assert _listens(port)
        up.send_signal(number)
        up.wait()
        while _listens(port):  # the suite's own time-out ends a broker's refusal to go
            time.sleep(0.05)
        marker = tmp_path / "data" / "broker" / ".kafka_cleanshutdown"
        while not marker.exists():
            time.sleep(0.05)
    finally:
        up.kill()
        up.communicate()


def test_what_it_prints_works_as_printed(environment: dict[str, str], tmp_path: Path) -> None:
    port = free_port()
    up = subprocess.Popen(
        [sys.executable, "-m", "penstock.cli.main", "up", "--set", f"listeners=PLAINTEXT://127.0.0.1:{port}",
         "--metrics-port", str(free_port()), "--data-dir", str(tmp_path / "data"), "--no-pipelines", "--no-console"],
        stdout=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    assert up.stdout is not None
    try:
        assert up.stdout.readline() == f"ready: 127.0.0.1:{port}\n"
        up.stdout.readline()
        tried = up.stdout.readline().split("try", 1)[1]
        assert f"-b 127.0.0.1:{port}" in tried
        subprocess.run(["bash", "-c", tried], env=environment, check=True, capture_output=True)
    finally:
        up.terminate()
        up.communicate()


def test_a_broker_for_everybody_says_so(environment: dict[str, str], tmp_path: Path) -> None:
    broker = subprocess.Popen(
        [sys.executable, "-m", "penstock.cli.main", "broker", "--set", f"listeners=PLAINTEXT://:{free_port()}",
         "--set", f"log.dirs={tmp_path / 'data'}"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    assert broker.stderr is not None
    try:
        assert "listens on all addresses" in broker.stderr.readline()
    finally:
        broker.terminate()
        broker.communicate()


def test_an_optional_part_that_keeps_failing_holds_nothing_up() -> None:
    said: list[str] = []

    async def story() -> int:
        supervisor = Supervisor(said.append)
        failing = Part("runner", [sys.executable, "-c", "raise SystemExit(3)"], ready_prefix="ready:", required=False)
        return await supervisor.run([failing], lambda: supervisor._on_signal())

    assert asyncio.run(story()) == 0
    assert any("runner ended with code 3" in line for line in said)
