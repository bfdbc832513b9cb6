"""What Kafka's scripts can: replicas placed at creation, single offsets deleted, groups reset, folders changed."""

from __future__ import annotations

import json
from pathlib import Path

import penstock

from .conftest import Run


def _offsets(call: Run, group: str) -> dict[str, int]:
    rows = json.loads(call(f"group describe {group} --json").stdout)["offsets"]
    return {row["topic"]: row["offset"] for row in rows}


def test_a_topic_is_made_where_it_was_told(call: Run, topic: str) -> None:
    node = json.loads(call("broker list --json").stdout)["id"]
    call(f"topic create {topic}-placed --assign 0:{node} --assign 1:{node}")
    assert len(json.loads(call(f"topic describe {topic}-placed --json").stdout)["partitions"]) == 2
    for options, said in [
        ("--assign 0", "PARTITION:ID"),
        (f"--assign 0:{node} --assign 0:{node}", "each partition once"),
        (f"--assign 0:{node} --partitions 3", "leave out the numbers"),
    ]:
        refused = call(f"topic create {topic}-x {options}", check=False)
        assert refused.returncode == 2 and said in refused.stderr
    absent = call(f"topic create {topic}-x --assign 0:4711", check=False)
    assert absent.returncode == 5 and "INVALID_REPLICA_ASSIGNMENT" in absent.stderr


def test_groups_are_reset_together_and_lose_single_offsets(call: Run, topic: str) -> None:
    call(f"produce {topic}", stdin="a\nb\n")
    call(f"produce {topic}-2 --partition 0", stdin="c\n")
    groups = f"{topic}-g1 {topic}-g2"
    for group in groups.split():
        call(f"consume {topic} {topic}-2 -B -e -g {group}")
    plan = call(f"group reset {groups} --to earliest --topic {topic} --yes --json").stdout.splitlines()
    assert {(row["group"], row["to"]) for row in map(json.loads, plan)} == {(name, 0) for name in groups.split()}
    assert call(f"group reset {topic}-g1 --all-groups --to latest", check=False).returncode == 2
    every = call(f"group reset --all-groups --topic {topic} --to latest --dry-run --json").stdout.splitlines()
    assert {json.loads(row)["group"] for row in every} == set(groups.split())
    refused = call(f"group delete-offsets {topic}-g1 -t {topic}", check=False)
    assert refused.returncode == 2 and "--yes" in refused.stderr
    call(f"group delete-offsets {topic}-g1 -t {topic}:0 --yes")
    assert set(_offsets(call, f"{topic}-g1")) == {f"{topic}-2"}
    assert set(_offsets(call, f"{topic}-g2")) == {topic, f"{topic}-2"}


def test_a_short_t_is_a_topic_everywhere(call: Run, topic: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a\n")
    call(f"produce -t {topic} file")
    assert call(f"consume -B -e --topic={topic}").stdout == "a\n"
    assert topic in call(f"topic describe -t {topic}").stdout
    assert call("consume -t", check=False).returncode == 2
    hint = call(f"consume {topic} -p 0 -e", check=False)
    assert hint.returncode == 4 and "-p names a profile; a partition is --partition N" in hint.stderr


def test_a_replica_moves_to_another_folder(call: Run, environment: dict[str, str], tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    with penstock.Broker(folders[0], settings={"log.dirs": ",".join(map(str, folders))}) as broker:
        environment["PENSTOCK_BOOTSTRAP"] = broker.bootstrap
        call("produce moved --partition 0", stdin="a\nb\n")
        node = json.loads(call("broker list --json").stdout)["id"]
        now = next(folder for folder in folders if (folder / "moved-0").is_dir())
        other = next(folder for folder in folders if folder != now)
        absent = call(f"partition move-folder -t moved:0 --broker {node} --to /nowhere", check=False)
        assert absent.returncode == 4 and "there is no log folder" in absent.stderr
        call(f"partition move-folder -t moved:0 --broker {node} --to {other}")
        assert (other / "moved-0").is_dir()
        assert call("consume moved -B -e").stdout == "a\nb\n"
        plan = {"partitions": [{"topic": "moved", "partition": 0, "replicas": [node], "log_dirs": [str(now)]}]}
        (tmp_path / "plan.json").write_text(json.dumps(plan))
        refused = call("partition reassign --plan plan.json --yes", check=False)
        assert refused.returncode == 2 and "move-folder" in refused.stderr
