"""A newcomer's first hour: the wheel in a fresh venv and HOME, up, a tour, a test of one's own; a mistake at each step.

Spark is not installed here: what asks for it has to say how to get it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from penstock.testing.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = ("*.pyc", "__pycache__", ".git", ".venv", "build", "dist", "*.egg-info", ".*_cache", "node_modules")
OWN_TEST = """
import penstock
import pytest
from confluent_kafka import Consumer, Producer


def test_orders_arrive(penstock_broker):
    producer = Producer({"bootstrap.servers": penstock_broker.bootstrap})
    producer.produce("orders", b"5 apples", key=b"anna")
    assert producer.flush(20) == 0


def test_a_wrong_setting_is_named():
    with pytest.raises(Exception, match="num.partitions"):
        penstock.Broker(settings={"num.partitions": "many"}).__enter__()
"""


@pytest.fixture
def machine(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A venv with the wheel in it and an environment that knows nothing of this checkout."""
    pytest.importorskip("build", reason="the wheel is built with the package build")
    source, wheels, place = tmp_path / "source", tmp_path / "wheels", tmp_path / "venv"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(wheels), str(source)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    outside = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    wanted = [str(next(wheels.glob("penstock-*.whl"))), "pytest"]
    if shutil.which("uv"):
        venv.create(place)
        install = ["uv", "pip", "install", "--quiet", "--python", str(place / "bin" / "python"), *wanted]
    else:
        venv.create(place, with_pip=True)
        install = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", *wanted]
    fetched = subprocess.run(install, cwd=tmp_path, env=outside, capture_output=True, text=True, check=False)
    if fetched.returncode:
        pytest.skip(f"what Penstock depends on cannot be fetched here: {fetched.stderr.strip()[-200:]}")
    home = tmp_path / "home"
    home.mkdir()
    return home, {"HOME": str(home), "PATH": f"{place / 'bin'}:/usr/bin:/bin", "COLUMNS": "100"}


@pytest.mark.timeout(600)
def test_the_first_hour(machine: tuple[Path, dict[str, str]]) -> None:
    home, environment = machine
    port = free_port()

    def type_in(line: str, code: int = 0, says: str = "") -> None:
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", line], cwd=home, env=environment, capture_output=True, text=True
        )
        assert done.returncode == code, f"{line}\n{done.stdout}\n{done.stderr}"
        assert says in done.stdout + done.stderr, f"{line}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr, done.stderr

    type_in("penstock --version", says="penstock ")
    type_in("penstock hlep", code=2, says="--help")
    type_in(f"penstock topic list -b 127.0.0.1:{port}", code=3, says="penstock up")
    command = f"exec penstock up --port {port} --metrics-port {free_port()} --data-dir data --no-pipelines --no-console"
    up = subprocess.Popen(
        ["bash", "-c", command], cwd=home, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert up.stdout is not None
        assert "ready:" in up.stdout.readline()
        environment["PENSTOCK_BOOTSTRAP"] = f"127.0.0.1:{port}"
        type_in("penstock topic create orders --partitions 3", says="created")
        type_in("penstock topic create orders", code=5, says="TOPIC_ALREADY_EXISTS")
        type_in(r"printf 'anna:5 apples\nben:2 pears\n' | penstock produce orders -K :", says="2 records")
        type_in(r"penstock consume orders -B -e -f '%k got %v\n'", says="anna got 5 apples")
        type_in("penstock consume ordrs -B -e", code=4, says="did you mean orders?")
        type_in("penstock consume orders -B -e -p 0", code=4, says="--partition N")
        type_in("penstock sql \"select * from topic('orders')\"", code=1, says="pip install 'penstock[spark]'")
    finally:
        up.send_signal(signal.SIGINT)
        up.communicate()
    assert up.returncode in (0, 130)
    (home / "test_own.py").write_text(OWN_TEST)
    type_in("python -m pytest -q test_own.py", says="2 passed")
