"""Every command under what goes wrong with commands: an exit code that says what, one line, never a stack trace.

In one process: nobody answers, an unknown option, a missing argument, Ctrl-C, a closed pipe and a full disk behind it.
"""

from __future__ import annotations

import functools
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.cli import main, session, typed
from penstock.cli.reference import commands
from penstock.client.sync import SyncClient

# What to call each command with that asks a cluster; `topic` and `group` are there.
CALLS = {
    "broker list": "",
    "broker describe": "1",
    "topic list": "",
    "topic describe": "topic",
    "topic create": "new",
    "topic delete": "topic --yes",
    "topic alter": "topic -c retention.ms=1",
    "topic add-partitions": "topic 9",
    "topic trim": "topic --all --yes",
    "topic export": "topic out.jsonl",
    "topic import": "topic in.jsonl",
    "topic copy": "topic other",
    "produce": "topic in.jsonl",
    "consume": "topic -B -e",
    "group list": "",
    "group describe": "group",
    "group members": "group",
    "group delete": "group --yes",
    "group delete-offsets": "group -t topic --yes",
    "group reset": "group -t topic --to earliest --yes",
    "group rebalances": "group",
    "config get": "topic:topic --all",
    "config set": "topic:topic retention.ms=1",
    "config delete": "topic:topic retention.ms",
    "acl list": "",
    "acl set": "User:anna read topic:topic",
    "acl delete": "--principal anna --yes",
    "acl explain": "anna read topic:topic",
    "quota list": "",
    "quota set": "user:anna produce=1",
    "quota delete": "user:anna",
    "quota explain": "--user anna",
    "partition status": "",
    "partition elect": "",
    "partition reassign": "--dry-run",
    "partition move-folder": "-t topic --broker 1 --to folder",
    "txn list": "",
    "txn describe": "id",
    "txn abort": "id --yes",
    "txn find-hanging": "",
    "pipeline list": "",
    "pipeline status": "name",
    "pipeline stop": "name",
    "pipeline restart": "name",
    "pipeline delete": "name --yes",
    "pipeline logs": "name",
    "pipeline compare": "topic other",
    "pipeline repoint": "name --suffix .v2 --yes",
    "dlq list": "",
    "dlq show": "letters",
    "dlq redrive": "letters",
    "token create": "",
    "token list": "",
    "token renew": "id",
    "token delete": "id --yes",
    "user list": "",
    "user set": "anna --password-file password",
    "user delete": "anna --yes",
    "perf produce": "topic -n 1",
    "perf consume": "topic -n 1",
    "perf end-to-end": "topic -n 1",
    "top": "--count 1",
    "doctor": "",
}
# They read pipeline files, start Spark, or serve as long as they live: tests/pipelines and tests/console try them.
WITH_SPARK_OR_SERVING = {
    "console",
    "pipeline dry-run",
    "pipeline run",
    "pipeline apply",
    "pipeline diff",
    "pipeline backfill",
    "pipeline runner",
    "sql",
}
# Those that only look, and print something also of a cluster without much in it.
LOOKS = ("broker list", "topic list", "topic describe", "consume", "group list", "config get", "quota explain")
KNOWN = dict(commands())


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[penstock.Broker]:
    with penstock.Broker(tmp_path_factory.mktemp("broker"), settings={"num.partitions": "1"}) as running:
        yield running


@pytest.fixture(autouse=True)
def a_home_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PENSTOCK_BOOTSTRAP", "PENSTOCK_PROFILE", "PENSTOCK_PROPERTIES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PENSTOCK_CONFIG", str(tmp_path / "profiles.toml"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a long password\n")))
    (tmp_path / "in.jsonl").write_text('{"value":"a"}\n')
    (tmp_path / "password").write_text("a long password\n")
    monkeypatch.setattr(typed, "Session", functools.partial(session.Session, patience_seconds=0.2))


def _one_line(shown: str) -> None:
    """One line that says what is wrong, and at most one that says what to do."""
    assert shown.startswith("penstock: "), shown
    assert len(shown.splitlines()) <= 2, shown
    assert "Traceback" not in shown


def test_the_table_has_every_command_that_asks_a_cluster() -> None:
    asking = {path for path, command in KNOWN.items() if any(p.name == "bootstrap" for p in command.params)}
    assert asking == set(CALLS) | WITH_SPARK_OR_SERVING


@pytest.mark.parametrize("path", CALLS)
def test_nobody_answers(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    for extra in ([], ["--json"]):
        code = main.run([*path.split(), *CALLS[path].split(), "-b", "127.0.0.1:1", *extra])
        shown = capsys.readouterr()
        assert (code, shown.out) == (3, ""), shown.err
        _one_line(shown.err)


@pytest.mark.parametrize("path", KNOWN)
def test_a_command_line_that_makes_no_sense(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [["--no-such-option"]]
    numbers = [p for p in KNOWN[path].params if p.metavar == "N" and p.param_type_name == "option"]
    lines += [[numbers[0].opts[0], "many"]] if numbers else []
    lines += [[]] if any(p.required for p in KNOWN[path].params) else []
    for words in lines:
        code = main.run([*path.split(), *words])
        shown = capsys.readouterr()
        assert (code, shown.out) == (2, ""), f"{words}: {shown.err}"
        _one_line(shown.err)


@pytest.mark.parametrize("path", CALLS)
def test_ctrl_c(path: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(SyncClient, "from_properties", interrupted)
    monkeypatch.setattr("confluent_kafka.Producer", interrupted)
    assert main.run([*path.split(), *CALLS[path].split()]) == 130
    assert capsys.readouterr().err == ""


@pytest.fixture
def looked_at(broker: penstock.Broker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", broker.bootstrap)
    monkeypatch.setattr(typed, "Session", session.Session)
    assert main.run(["produce", "topic", "in.jsonl", "-q"]) == 0, capsys.readouterr().err
    for command in ("consume topic -B -n 1 -g group", "topic create another --if-not-exists"):
        assert main.run(command.split()) == 0, capsys.readouterr().err
    capsys.readouterr()


def test_json_is_json(looked_at: None, capsys: pytest.CaptureFixture[str]) -> None:
    for path in LOOKS:
        assert main.run([*path.split(), *CALLS[path].split(), "--json"]) == 0, path
        lines = capsys.readouterr().out.splitlines()
        assert lines and all(isinstance(json.loads(line), dict) for line in lines), path


MISSING = {
    "broker describe": "99",
    "topic list": "nope",
    "topic describe": "nope",
    "topic delete": "nope --yes",
    "topic alter": "nope -c retention.ms=1",
    "topic add-partitions": "nope 9",
    "topic trim": "nope --all --yes",
    "topic export": "nope out.jsonl",
    "topic import": "topic nope.jsonl",
    "topic copy": "nope other",
    "produce": "topic nope.jsonl",
    "consume": "nope -e",
    "group describe": "nope",
    "group members": "nope",
    "group delete": "nope --yes",
    "group delete-offsets": "nope -t topic --yes",
    "group reset": "group -t nope --to earliest --yes",
    "config get": "topic:nope",
    "config set": "topic:nope retention.ms=1",
    "partition status": "-t nope",
    "partition elect": "-t nope",
    "partition reassign": "-t nope --dry-run",
    "txn describe": "nope",
    "txn abort": "nope --yes",
    "pipeline status": "nope",
    "pipeline stop": "nope",
    "pipeline delete": "nope --yes",
    "dlq show": "nope",
    "dlq redrive": "nope",
    "perf consume": "nope",
    "perf end-to-end": "nope",
}


def test_what_is_not_there_has_one_exit_code(looked_at: None, capsys: pytest.CaptureFixture[str]) -> None:
    told = {}
    for path, words in MISSING.items():
        told[path] = main.run([*path.split(), *words.split()])
        shown = capsys.readouterr()
        assert shown.out == "", path
        _one_line(shown.err)
    assert told == dict.fromkeys(MISSING, 4)


@pytest.mark.parametrize("kind", ["closed", "full"])
def test_an_output_that_takes_nothing(
    looked_at: None, kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for path, words in CALLS.items():
        if kind == "full":
            target = os.open("/dev/full", os.O_WRONLY)
        else:
            reading, target = os.pipe()
            os.close(reading)
        with monkeypatch.context() as patched, os.fdopen(target, "w") as output:
            patched.setattr(sys, "stdout", output)
            patched.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a long password\n")))
            code = main.run([*path.split(), *words.split()])
        shown = capsys.readouterr()
        assert shown.out == "", path
        if code and path not in LOOKS:  # also what is not there, or not switched on, is said in one line
            _one_line(shown.err[shown.err.index("penstock: ") :])
        elif kind == "full" and path in LOOKS:
            assert code == 1, path
            _one_line(shown.err)
            assert "No space left" in shown.err
        elif path in LOOKS:
            assert (code, shown.err) == (0, ""), path


HEAVY = (
    "pyspark",
    "nicegui",
    "fastapi",
    "starlette",
    "uvicorn",
    "pandas",
    "pyarrow",
    "numba",
    "numpy",
    "textual",
    "rich",
    "pydantic",
    "confluent_kafka",
)
LOADED = """
import sys
from penstock.cli import main
from penstock.cli.commands import COMMANDS
root = main.build()
for name in COMMANDS:
    before = set(sys.modules)
    context = root.make_context("penstock", [name], resilient_parsing=True)
    root.get_command(context, name).get_params(context)
    heavy = sorted({module.split(".")[0] for module in set(sys.modules) - before} & set(sys.argv[1:]))
    if heavy:
        print(name, *heavy)
"""


def test_no_command_imports_spark_or_a_web_framework_before_it_needs_it() -> None:
    command = [sys.executable, "-c", LOADED, *HEAVY]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == ""
