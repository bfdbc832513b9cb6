"""Every example of docs/cli.md and the tour of the README run, as written."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

import penstock
from penstock.cli.examples import ELSEWHERE, EXAMPLES, SERVERS, example_of
from penstock.cli.reference import ENVIRONMENT, commands
from penstock.testing.ports import free_port

ROOT = Path(__file__).resolve().parents[2]


# With ACLs, so that the commands about them have something to talk to; whoever comes is a super user.
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture
def own_broker(tmp_path: Path, environment: dict[str, str]) -> object:
    with penstock.Broker(tmp_path / "data", settings=SETTINGS) as broker:
        environment["PENSTOCK_BOOTSTRAP"] = broker.bootstrap
        environment["DATA"] = str(tmp_path / "data")
        yield broker


def test_every_command_has_an_example() -> None:
    assert [path for path, _ in commands() if example_of(path) is None] == []


def test_the_examples_run_one_after_the_other(own_broker: object, environment: dict[str, str], tmp_path: Path) -> None:
    for path, line in EXAMPLES.items():
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", line],
            capture_output=True,
            text=True,
            env=environment,
            cwd=tmp_path,
            timeout=120,
        )
        assert done.returncode == 0, f"{path}: {line}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("path", ELSEWHERE)
def test_every_word_of_an_example_that_runs_elsewhere_is_right(path: str) -> None:
    words = shlex.split(ELSEWHERE[path])[1:]
    known = dict(commands())
    assert " ".join(words[: len(path.split())]) == path
    known[path].make_context(path, words[len(path.split()) :])  # an unknown option or a missing argument raises
    missing = [word for word in words if word.startswith("examples/") and not (ROOT / word).is_file()]
    assert missing == []


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_says_when_it_is_ready_and_stops_when_told(
    name: str, environment: dict[str, str], tmp_path: Path
) -> None:
    variables = {**environment, "PORT": str(free_port()), "OTHER_PORT": str(free_port())}
    server = subprocess.Popen(
        ["bash", "-c", f"exec {SERVERS[name]}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=variables,
        cwd=tmp_path,
    )
    assert server.stdout is not None
    try:
        line = server.stdout.readline()
        assert line.startswith("ready:"), line + (server.stderr.read() if server.stderr and not line else "")
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=60)
        assert server.returncode == 0
    finally:
        if server.poll() is None:
            os.kill(server.pid, signal.SIGKILL)
            server.communicate()


def test_the_tour_of_the_readme_runs(own_broker: object, environment: dict[str, str], tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    tour = re.search(r"<!-- tour.*?-->\n```sh\n(.*?)```", text, re.DOTALL)
    assert tour is not None
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", tour.group(1)],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "anna: 5 apples" in done.stdout


def test_every_variable_that_commands_take_from_the_shell_is_told() -> None:
    read = set()
    for path in set((ROOT / "penstock").rglob("*.py")) - set((ROOT / "penstock" / "testing").rglob("*.py")):
        read |= set(re.findall(r"""environ(?:\.get\(|\[)"([A-Z_]+)\"[\]\),](?! =)""", path.read_text(encoding="utf-8")))
    for_others = {
        "XDG_CONFIG_HOME",
        "XDG_CACHE_HOME",
        "PYTHONPATH",
        "PYSPARK_PYTHON",
        "PYSPARK_DRIVER_PYTHON",
        "NUMBA_CACHE_DIR",
    }
    assert read - for_others <= set(", ".join(ENVIRONMENT).split(", "))
    assert "PENSTOCK_BOOTSTRAP" in read
