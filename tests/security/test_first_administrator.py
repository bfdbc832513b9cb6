"""The first steps: `penstock up --secure`, users before the first start, and files that only their owner reads."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka
import pytest

import penstock
from penstock.operate import profiles
from penstock.testing.ports import free_port

PENSTOCK = [sys.executable, "-m", "penstock.cli.main"]


def penstock_command(
    folder: Path, *arguments: str, stdin: str = "", check: bool = True
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PENSTOCK_CONFIG": str(folder / "profiles.toml")}
    return subprocess.run(
        [*PENSTOCK, *arguments], input=stdin, capture_output=True, text=True, timeout=60, cwd=folder, env=environment,
        check=check,
    )  # fmt: skip


@contextmanager
def up(folder: Path, port: int, *more: str) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "PENSTOCK_CONFIG": str(folder / "profiles.toml")}
    metrics = str(free_port())
    options = ["--no-pipelines", "--no-console", "--data-dir", "data", "--metrics-port", metrics]
    process = subprocess.Popen(
        [*PENSTOCK, "up", "--port", str(port), *options, *more],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder, env=environment,
    )  # fmt: skip
    watchdog = threading.Timer(60, process.kill)
    watchdog.start()
    try:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith("ready:"):
                break
        else:
            pytest.fail("".join(lines))
        yield process
    finally:
        watchdog.cancel()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


def mode(path: Path) -> str:
    return oct(stat.S_IMODE(path.stat().st_mode))


def command_lines() -> str:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(entry.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return "\n".join(found)


def test_up_secure_makes_everything_that_a_secured_broker_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_CONFIG", str(tmp_path / "profiles.toml"))
    port = free_port()
    with up(tmp_path, port, "--secure"):
        password = profiles.load("secure")["sasl.password"]
        assert password not in command_lines()
        penstock_command(tmp_path, "topic", "create", "orders", "-p", "secure")
        penstock_command(tmp_path, "user", "set", "anna", "-p", "secure", stdin="anna's own\n")
        users = penstock_command(tmp_path, "user", "list", "-p", "secure").stdout
        assert "admin" in users and "anna" in users and "SCRAM-SHA-512" in users
        stranger = penstock_command(tmp_path, "topic", "list", "-b", f"127.0.0.1:{port}", check=False)
        assert stranger.returncode != 0
        ca = str(tmp_path / "data" / "security" / "ca.pem")
        as_anna = ["-b", f"127.0.0.1:{port}", "-X", "security.protocol=SASL_SSL", "-X", f"ssl.ca.location={ca}"]
        as_anna += ["-X", "sasl.mechanism=SCRAM-SHA-512", "-X", "sasl.username=anna", "-X", "sasl.password=anna's own"]
        denied = penstock_command(tmp_path, "topic", "create", "hers", *as_anna, check=False)
        assert denied.returncode != 0  # logged in, but nobody has given her any right
        gone = penstock_command(tmp_path, "user", "delete", "anna", "--yes", "-p", "secure")
        assert gone.returncode == 0
        assert penstock_command(tmp_path, "user", "delete", "anna", "--yes", "-p", "secure", check=False).returncode
    data = tmp_path / "data"
    for private in ("security/ca.key", "security/server.pem", "security/server.properties", "broker/penstock.db"):
        assert mode(data / private) == "0o600", private
    assert mode(data / "broker") == mode(data / "security") == mode(data / "broker" / "orders-0") == "0o700"
    assert mode(tmp_path / "profiles.toml") == "0o600"
    with up(tmp_path, port, "--secure"):
        assert profiles.load("secure")["sasl.password"] == password
        assert "orders" in penstock_command(tmp_path, "topic", "list", "-p", "secure").stdout


def test_the_first_administrator_is_there_before_the_first_start(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    sets = ["--set", f"log.dirs={folder}"]
    penstock_command(tmp_path, "user", "bootstrap", "admin", *sets, stdin="a long password\n")
    refused = penstock_command(tmp_path, "user", "bootstrap", "admin", *sets, stdin="\n", check=False)
    assert "password is empty" in refused.stderr
    settings = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "SCRAM-SHA-512"}
    with penstock.Broker(folder, settings=settings) as broker:
        login = ["-b", broker.bootstrap, "-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=SCRAM-SHA-512"]
        login += ["-X", "sasl.username=admin", "-X", "sasl.password=a long password"]
        assert "admin" in penstock_command(tmp_path, "user", "list", *login).stdout
        running = penstock_command(tmp_path, "user", "bootstrap", "x", *sets, stdin="y\n", check=False)
        assert "a broker runs" in running.stderr
    assert mode(folder / "penstock.db") == "0o600" and mode(folder) == "0o700"


def test_a_store_that_was_open_to_others_is_closed(tmp_path: Path) -> None:
    with penstock.Broker(tmp_path):
        pass
    (tmp_path / "penstock.db").chmod(0o644)
    with penstock.Broker(tmp_path):
        assert mode(tmp_path / "penstock.db") == "0o600"


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({}, "GSSAPI"),
        ({"sasl.enabled.mechanisms": "GSSAPI,PLAIN"}, "Kerberos"),
        ({"sasl.enabled.mechanisms": "DIGEST-MD5"}, "offered are"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, "PLAIN has no users"),
        ({"sasl.enabled.mechanisms": "PLAIN", "sasl.jaas.config": "x.ScramLoginModule required a=b;"}, "PlainLogin"),
        ({"sasl.enabled.mechanisms": "PLAIN", "sasl.jaas.config": "nonsense"}, "not understood"),
        ({"sasl.enabled.mechanisms": "OAUTHBEARER"}, "nobody signed"),
    ],
)
def test_a_listener_at_which_nobody_could_log_in_is_refused(settings: dict[str, str], complaint: str) -> None:
    broker = penstock.Broker(settings={"listeners": "SASL_PLAINTEXT://127.0.0.1:0", **settings})
    with pytest.raises(Exception, match=complaint):
        broker.start()


def test_what_an_embedded_broker_writes_is_for_its_owner_too(tmp_path: Path) -> None:
    """It may not change its host's umask, so each file gets its mode when it is made."""
    before = os.umask(0o022)
    try:
        settings = {"auto.create.topics.enable": "true"}
        with penstock.Broker(tmp_path / "data", num_partitions=1, settings=settings) as broker:
            producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
            producer.produce("t", b"v", b"k")
            assert producer.flush(30) == 0
            running = list((tmp_path / "data").rglob("*"))
            assert any(path.suffix == ".log" for path in running)
            assert [path for path in running if path.exists() and path.stat().st_mode & 0o077] == []
        stopped = list((tmp_path / "data").rglob("*"))
        assert any(path.suffix == ".snapshot" for path in stopped)
        assert [path for path in stopped if path.stat().st_mode & 0o077] == []
    finally:
        os.umask(before)
