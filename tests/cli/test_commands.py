"""The command as people use it: tables and JSON, pipes, wrong input, and what is left behind."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock
from penstock.cli.commands import COMMANDS
from penstock.testing.ports import free_port

Run = Callable[..., subprocess.CompletedProcess[str]]


def rows(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_help_names_every_command_and_needs_no_broker(run: Run) -> None:
    text = run("--help").stdout
    assert all(f"  {name} " in text for name in COMMANDS)


def test_a_mistyped_command_topic_or_setting_is_answered_with_the_nearest_one(run: Run, topic: str) -> None:
    for line, code, hint in (
        ("topik list", 2, "penstock topic"),
        (f"topic describe {topic}x", 4, topic),
        (f"config set topic:{topic} retenton.ms=1", 4, "retention.ms"),
        ("topic list --jsn", 2, "--json"),
    ):
        done = run(line, check=False)
        assert done.returncode == code, line
        assert hint in done.stderr
        assert "Traceback" not in done.stderr


def test_what_was_produced_is_consumed(run: Run, topic: str) -> None:
    run(f"produce {topic} --key-separator : --header kind=test", stdin="a:1\nb:2\nc:\n")
    assert run(f"consume {topic} -B -e").stdout == "1\n2\n\n"
    assert run(rf"consume {topic} -B -e --format '%p/%o %k=%s %h\n'").stdout.splitlines()[1] == "0/1 b=2 kind=test"
    assert run(f"consume {topic} -B -e --keys-only").stdout == "a\nb\nc\n"
    assert [row["key"] for row in rows(run(f"consume {topic} -B -e --json").stdout)] == ["a", "b", "c"]
    assert run(f"consume {topic} --offset -1 -e").stdout == "\n"
    assert run(f"consume {topic} -B -n 2").stdout == "1\n2\n"


def test_tombstones_and_json_records_keep_their_nulls(run: Run, topic: str) -> None:
    run(f"produce {topic} -K : --tombstones", stdin="gone:\n")
    run(f"produce {topic} --format json", stdin='{"key": null, "value": {"n": 1}, "headers": [["h", null]]}\n')
    first, second = rows(run(f"consume {topic} -B -e --json").stdout)
    assert (first["key"], first["value"]) == ("gone", None)
    assert (second["key"], second["value"], second["headers"]) == (None, '{"n":1}', [["h", None]])


def test_filters_look_into_values(run: Run, topic: str) -> None:
    lines = (
        "".join(json.dumps({"key": f"k{n}", "value": {"amount": n}}) + "\n" for n in range(10))
        + '{"value": "no json"}\n'
    )
    run(f"produce {topic} --format json", stdin=lines)
    found = run(f"""consume {topic} -B -e --keys-only --filter 'value.amount > 7 or key == "k0"'""").stdout
    assert found == "k0\nk8\nk9\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--format '%p %q'", "position 4"),
        ("--filter 'value.amount >'", "position"),
        ("--filter '__import__(1)'", "position 1"),
        ("--filter 'nothing == 1'", "is no field"),
        ("--from yesterdayish", "is not a time"),
        ("--offset x:y", "PARTITION:OFFSET"),
        ("--isolation dirty", "committed and uncommitted"),
        ("--from-beginning --from 2h", "several starts"),
    ],
)
def test_malformed_options_name_the_place(run: Run, topic: str, options: str, message: str) -> None:
    done = run(f"consume {topic} {options} -e", check=False)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stdout == ""


def test_no_broker_is_said_in_one_line_with_its_own_exit_code(run: Run) -> None:
    done = run("penstock topic list -b 127.0.0.1:1", check=False)
    assert done.returncode == 3
    assert "127.0.0.1:1" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_closed_pipe_ends_quietly(run: Run, topic: str) -> None:
    run(f"produce {topic}", stdin="x\n" * 5000)
    done = run(f"penstock consume {topic} -B -e 2>errors | head -n 1; cat errors", check=False)
    assert done.stdout == "x\n"


def test_ctrl_c_commits_what_was_shown_when_reading_as_a_group(
    run: Run, topic: str, environment: dict[str, str], tmp_path: Path
) -> None:
    run(f"produce {topic}", stdin="1\n2\n3\n")
    command = ["penstock", "consume", topic, "--from-beginning", "--group", f"g-{topic}"]
    reader = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=tmp_path
    )
    assert reader.stdout is not None
    assert [reader.stdout.readline() for _ in range(3)] == ["1\n", "2\n", "3\n"]
    reader.send_signal(signal.SIGINT)
    _, errors = reader.communicate(timeout=30)
    assert reader.returncode == 130
    assert "Traceback" not in errors
    described = rows(run(f"group describe g-{topic} --json").stdout)[0]
    assert [row["offset"] for row in described["offsets"]] == [3]  # type: ignore[attr-defined]


def test_a_group_is_moved_only_after_its_plan_was_shown(run: Run, topic: str) -> None:
    run(f"produce {topic}", stdin="1\n2\n3\n")
    run(f"consume {topic} -B -e --group g-{topic}")
    assert "-3" in run(f"group reset g-{topic} --to earliest --dry-run").stdout
    assert run(f"group reset g-{topic} --to earliest", check=False).returncode == 2  # nobody there to say yes
    run(f"group reset g-{topic} --to earliest --yes")
    assert run(f"consume {topic} -e --group g-{topic}").stdout == "1\n2\n3\n"
    run(f"group reset g-{topic} --shift -1 --yes")
    assert rows(run(f"group describe g-{topic} --json").stdout)[0]["offsets"][0]["lag"] == 1  # type: ignore[index]
    assert "joined" in run(f"group rebalances g-{topic}").stdout
    run(f"group delete g-{topic} --yes")
    assert run(f"group describe g-{topic}", check=False).returncode == 4


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_export_and_import_bring_back_every_record_exactly(run: Run, topic: str, tmp_path: Path, ending: str) -> None:
    records = [
        {"key": "a", "value": "1", "timestamp": 1_700_000_000_000, "headers": [["h", "x"], ["h", None]]},
        {"key": None, "value": None, "timestamp": 1_700_000_000_001},
        {"key": "", "value": "", "timestamp": 1_700_000_000_002},
        {"key": "gP8=", "key_encoding": "base64", "value": "ü\n", "timestamp": 1_700_000_000_003},
    ]
    run(f"produce {topic} --format json", stdin="".join(json.dumps(r) + "\n" for r in records))
    run(f"topic export {topic} out.{ending}")
    run(f"topic create {topic}-back -n 1")
    run(f"topic import {topic}-back out.{ending}")
    assert not list(tmp_path.glob("*.part"))

    def bare(name: str) -> list[dict[str, object]]:
        return [
            {k: v for k, v in row.items() if k != "topic"} for row in rows(run(f"consume {name} -B -e --json").stdout)
        ]

    assert bare(topic) == bare(f"{topic}-back")


def test_a_broken_export_is_resumed(run: Run, topic: str, tmp_path: Path) -> None:
    run(f"produce {topic}", stdin="".join(f"{n}\n" for n in range(100)))
    run(f"topic export {topic} whole.jsonl")
    lines = (tmp_path / "whole.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "again.jsonl.part").write_text("".join(lines[:40]) + lines[40][:10])
    run(f"topic export {topic} again.jsonl --resume")
    assert (tmp_path / "again.jsonl").read_text() == "".join(lines)


def test_partial_success_has_its_own_exit_code(run: Run, topic: str) -> None:
    done = run(f"topic create {topic} {topic}-new", check=False)
    assert done.returncode == 6
    assert f"{topic}-new created" in done.stdout
    assert "already exists" in done.stderr


def test_json_goes_through_jq(run: Run, topic: str) -> None:
    assert run(f"penstock topic list --json | jq -r 'select(.name == \"{topic}\").partitions'").stdout == "1\n"


def test_binary_and_huge_values_do_not_harm_a_terminal(
    run: Run, topic: str, environment: dict[str, str], tmp_path: Path
) -> None:
    run(f"produce {topic} --format json", stdin=json.dumps({"value": "G1szMW0=", "value_encoding": "base64"}) + "\n")
    run(f"produce {topic}", stdin="y" * 100_000 + "\n")
    master, slave = pty.openpty()
    command = ["penstock", "consume", topic, "-B", "-e"]
    process = subprocess.Popen(command, stdout=slave, stderr=slave, stdin=slave, env=environment, cwd=tmp_path)
    os.close(slave)
    shown = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:
            break
        if not part:
            break
        shown += part
    process.wait(30)
    os.close(master)
    assert b"\x1b[31m" not in shown
    assert rb"\x1b[31m" in shown
    assert b"100001 bytes" in shown
    assert len(shown) < 10_000


def test_tables_fit_a_terminal_of_80_columns(run: Run, topic: str, environment: dict[str, str], tmp_path: Path) -> None:
    command = f"stty cols 80; penstock topic describe {topic}"
    done = subprocess.run(
        ["script", "-qec", command, "/dev/null"], capture_output=True, text=True, env=environment, cwd=tmp_path
    )
    if done.returncode == 127:
        pytest.skip("no `script` command here")
    seen = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout.replace("\r", ""))
    assert all(len(line.rstrip()) <= 80 for line in seen.splitlines()), seen


def test_transactional_produce_shows_all_or_nothing(run: Run, topic: str) -> None:
    run(f"produce {topic} --transactional", stdin="1\n2\n")
    done = run(f"produce {topic} --transactional --format json", stdin='{"value": "3"}\nnot json\n', check=False)
    assert done.returncode == 2
    assert run(f"consume {topic} -B -e").stdout == "1\n2\n"
    assert run(f"consume {topic} -B -e --isolation uncommitted").stdout in ("1\n2\n", "1\n2\n3\n")


def test_profiles_name_clusters_and_hide_secrets(run: Run, broker: penstock.Broker, tmp_path: Path) -> None:
    run(f"profile set here bootstrap.servers={broker.bootstrap}")
    run("profile set here sasl.password=geheim")
    assert "geheim" not in run("profile show here").stdout
    kept = tmp_path / "config" / "penstock" / "profiles.toml"
    assert kept.stat().st_mode & 0o077 == 0
    run("profile set here sasl.password=")
    assert run("env -u PENSTOCK_BOOTSTRAP penstock topic list -p here | cat").returncode == 0
    assert run("topic list -p nowhere", check=False).returncode == 4


def test_doctor_finds_nothing_wrong_with_a_healthy_broker(run: Run) -> None:
    found = rows(run("doctor --json").stdout)
    assert {row["check"] for row in found} >= {"connectivity", "replicas", "disk", "settings"}
    assert not [row for row in found if row["severity"] == "problem"]


def test_export_to_a_full_disk_says_so_and_leaves_no_complete_looking_file(
    run: Run, topic: str, tmp_path: Path
) -> None:
    run(f"produce {topic}", stdin="z" * 1000 + "\n")
    (tmp_path / "out.jsonl.part").symlink_to("/dev/full")
    done = run(f"topic export {topic} out.jsonl", check=False)
    assert done.returncode == 6
    assert "No space left" in done.stderr
    assert not (tmp_path / "out.jsonl").exists()


def test_a_broker_that_goes_away_in_the_middle_is_reported(environment: dict[str, str], tmp_path: Path) -> None:
    with penstock.Broker() as short_lived:
        environment = {**environment, "PENSTOCK_BOOTSTRAP": short_lived.bootstrap}
        subprocess.run(["penstock", "topic", "create", "t"], env=environment, check=True, capture_output=True)
        reader = subprocess.Popen(
            ["penstock", "consume", "t"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=tmp_path,
        )  # fmt: skip
        subprocess.run(
            ["penstock", "produce", "t"], input="seen\n", text=True, env=environment, check=True, capture_output=True
        )
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and reader.poll() is None:
            subprocess.run(
                ["penstock", "produce", "t"], input="seen\n", text=True, env=environment, capture_output=True
            )
            assert reader.stdout is not None
            if reader.stdout.readline() == "seen\n":
                break
    _, errors = reader.communicate(timeout=60)
    assert reader.returncode == 3
    assert "no broker answers" in errors


def test_a_broker_writes_its_log_as_the_settings_say(environment: dict[str, str], tmp_path: Path) -> None:
    words = ["broker", "-s", f"log.dirs={tmp_path / 'data'}", "-s", "listeners=PLAINTEXT://127.0.0.1:0"]
    formats = ["-s", "penstock.log.format=json", "-s", "penstock.metrics.listener=127.0.0.1:0"]
    with subprocess.Popen(
        ["penstock", *words, *formats], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as broker:
        assert broker.stdout is not None
        assert broker.stdout.readline().startswith("ready: ")
        broker.terminate()
        _, errors = broker.communicate()
    lines = [json.loads(line) for line in errors.splitlines()]
    assert {line["level"] for line in lines} == {"info"}
    assert any("stops" in line["message"] for line in lines), errors


def test_a_taken_port_is_named_with_the_setting_that_chose_it(environment: dict[str, str], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        for setting, value in (("listeners", f"PLAINTEXT://{place}"), ("penstock.metrics.listener", place)):
            given = {"log.dirs": str(tmp_path / "data"), "listeners": "PLAINTEXT://127.0.0.1:0", setting: value}
            words = [word for pair in given.items() for word in ("-s", "=".join(pair))]
            command = ["penstock", "broker", *words]
            done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
            assert done.returncode == 1
            told = f"cannot start: cannot listen on {place}: another process listens there ({setting} says where)"
            assert done.stderr.splitlines()[-1] == f"penstock: {told}"


def test_a_broker_that_runs_out_of_files_says_so_before(environment: dict[str, str], tmp_path: Path) -> None:
    port, metrics_port = free_port(), free_port()
    words = f"-s log.dirs={tmp_path / 'data'} -s listeners=PLAINTEXT://127.0.0.1:{port}"
    line = f"ulimit -n 100; exec penstock broker {words} -s penstock.metrics.listener=127.0.0.1:{metrics_port}"
    with subprocess.Popen(
        ["bash", "-c", line], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as broker:
        assert broker.stdout is not None
        assert broker.stdout.readline().startswith("ready: ")
        doctor = ["penstock", "doctor", "-b", f"127.0.0.1:{port}", "--json"]
        with contextlib.ExitStack() as idle:
            before = sum(1 for _ in Path(f"/proc/{broker.pid}/fd").iterdir())
            for _ in range(82 - before):
                idle.enter_context(socket.create_connection(("127.0.0.1", port)))
            found = subprocess.run(doctor, capture_output=True, text=True, check=False, env=environment).stdout
        broker.terminate()
        _, errors = broker.communicate()
    assert "only 100 files and connections may be open" in errors
    assert "its limit is 100" in found
