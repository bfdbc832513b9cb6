"""Wrong input to any command: one line that says what is wrong, the right exit code, nothing half-done, no stack."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock
from penstock.testing.ports import free_ports

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("consume {topic} -B -n -5", 2, "--count"),
        ("consume {topic} -B -e --schema x.avsc", 2, "need --decode"),
        ("consume {topic} -B -e --decode avro --schema wrong", 2, "wrong is no avro schema"),
        ("consume {topic} -B -e --decode protobuf --schema wrong.desc", 2, "wrong.desc is no protobuf schema"),
        ("consume {topic} -B -e --decode avro --schema absent.avsc", 4, "no file absent.avsc"),
        ("consume {topic} -B -e -X no.such.property=1", 2, "no.such.property"),
        ("topic list -X security.protocol=FOO", 2, "security.protocol"),
        ("topic export {topic} absent/out.jsonl", 4, "no folder absent"),
        ("topic export {topic} wrong.jsonl --resume", 1, "wrong.jsonl.part is no broken export"),
        ("topic export {topic} other.jsonl --resume", 1, "is of topic other"),
        ("topic import {topic} list.jsonl", 2, "line 2 is no JSON object"),
        ("topic import {topic} wrong.parquet", 2, "wrong.parquet is no Parquet file"),
        ("topic import {topic} ok.jsonl --resume", 1, "is no journal"),
        ("partition reassign --plan plan.json --yes --throttle 1000", 4, "no partition"),
        ("partition reassign --plan wrong --yes", 2, "wrong is no plan"),
        ("partition reassign --throttle -1", 2, "--throttle"),
        ("group reset g --from-file partition.csv --yes", 4, "no partition 9"),
        ("group reset g --from-file wrong --yes", 2, "line 1"),
        ("perf produce {topic} --size -1", 2, "--size"),
        ("perf produce {topic} -n 10 -z lzma", 2, "lzma"),
        ("perf end-to-end {topic} --rate 0", 2, "--rate"),
        ("perf produce {topic} -n 10 -b 127.0.0.1:1", 3, "no broker answers: nothing listens at 127.0.0.1:1\n"),
        ("topic list -b localhost:1", 3, "no broker answers: nothing listens at localhost:1\n"),
        ("topic list -b nobody.invalid", 3, "no broker answers: there is no host named 'nobody.invalid'\n"),
        ("sql \"select * from topic('t')\" -b 127.0.0.1:1", 3, "nothing listens at 127.0.0.1:1\n"),
        ("console --users absent", 4, "no file of users absent"),
        ("console --policy absent", 4, "there is no file absent"),
        ("console --access absent", 4, "there is no file absent"),
        ("console --certificate absent --key absent", 4, "there is no file absent"),
        ("console --host 0.0.0.0", 2, "the console needs TLS"),
        ("console -b x:y", 2, "it comes from -b"),
        ("console --state-dir wrong", 1, "wrong cannot hold the console's files: it is a file"),
        ("cluster start --data-dir wrong", 1, "wrong cannot hold the data: it is a file"),
        ("zookeeper --data-dir wrong", 1, "wrong cannot hold the data: it is a file"),
        (
            "broker -s log.dirs=wrong -s listeners=A://127.0.0.1:0 -s listener.security.protocol.map=A:PLAINTEXT",
            1,
            "wrong/penstock.db cannot be opened: wrong is a file",
        ),
        ("up --data-dir wrong", 1, "wrong cannot hold the data: it is a file"),
        ("log dump wrong", 2, "holds no log"),
        ("log verify absent", 4, "absent"),
        ("cluster start --base-port 99999", 2, "--base-port"),
        ("cluster start --brokers 0", 2, "--brokers"),
        ("cluster status --data-dir absent", 4, "no cluster"),
        ("store migrate --to etcd --connect x", 2, "there is zookeeper"),
        ("store migrate --to zookeeper --connect 127.0.0.1:1 -s log.dirs=absent", 4, "there is no store"),
        ("zookeeper --server abc", 2, "ID=HOST"),
        ("pipeline dry-run absent.yml", 4, "absent.yml"),
        ("dlq redrive absent", 4, "absent"),
        ("topic lst", 2, "Did you mean 'list'"),
        ("consume {topic} -B -n 0", 2, "--count"),
        ("topic list -b ''", 2, "-b is empty"),
        ("topic list -p ''", 2, "-p is empty"),
        ("topic list -b x:99999", 2, "it comes from -b"),
        ("topic alter {topic} --reset retention.mss", 4, "no setting 'retention.mss'"),
        ("config get broker --all", 0, "nothing is set for all brokers"),
        ("txn list --state Open", 2, "--state 'Open' is unknown"),
        ("group reset g --topic {topic} --to begin --yes", 2, "earliest, latest"),
        ("profile set new client.idd=a", 2, "did you mean client.id?"),
        ("profile set '' client.id=a", 2, "needs a name"),
        ("pipeline validate binary.yml", 5, "no text in UTF-8"),
        ("pipeline validate format.yml", 5, "did you mean 'string'?"),
        ("pipeline test good.yml absent.yml", 4, "no file absent.yml"),
        ("pipeline logs absent", 4, "no pipeline 'absent'"),
        ("sql 'select 1'", 5, "names no topic"),
        ("zookeeper --port 99999", 2, "--port"),
    ],
)
def test_it_is_said_in_a_line_with_an_exit_code(
    run: Run, topic: str, tmp_path: Path, line: str, code: int, message: str
) -> None:
    for name in ("wrong", "wrong.desc", "wrong.parquet", "wrong.jsonl.part"):
        (tmp_path / name).write_text("this is neither\n")
    (tmp_path / "other.jsonl.part").write_text('{"topic":"other","partition":0,"offset":0}\n')
    (tmp_path / "list.jsonl").write_text('{"value": 1}\n[1]\n')
    (tmp_path / "ok.jsonl").write_text('{"value": 1}\n')
    (tmp_path / f"ok.jsonl.{topic}.imported").write_text("many\n")
    (tmp_path / "plan.json").write_text(json.dumps({"partitions": [{"topic": topic, "partition": 9, "replicas": [1]}]}))
    good = "{name: p, sources: {a: {topic: a, format: string}}, sinks: {o: {from: a, topic: o, format: string}}}"
    (tmp_path / "good.yml").write_text(good)
    (tmp_path / "format.yml").write_text(good.replace("string", "strng", 1))
    (tmp_path / "binary.yml").write_bytes(b"name: \xff\xfe")
    (tmp_path / "partition.csv").write_text(f"{topic},9,0\n")
    done = run(line.format(topic=topic), check=False)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) <= 2


def test_a_migration_without_zookeeper_says_so_once(run: Run, tmp_path: Path) -> None:
    with penstock.Broker(tmp_path / "data"):
        pass
    options = "-s zookeeper.connection.timeout.ms=1000"
    done = run(
        f"store migrate --to zookeeper --connect 127.0.0.1:1 -s log.dirs={tmp_path / 'data'} {options}", check=False
    )
    assert done.returncode == 3
    assert done.stderr.splitlines()[0] == "penstock: no ZooKeeper answers at 127.0.0.1:1"
    assert len(done.stderr.splitlines()) == 2


def test_the_store_of_a_running_broker_is_not_moved(run: Run, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with penstock.Broker(data):
        done = run(f"store migrate --to zookeeper --connect 127.0.0.1:1 -s log.dirs={data}", check=False)
    assert done.returncode == 5
    assert f"a broker runs on {data}" in done.stderr
    assert (data / "penstock.db").exists()


def test_an_import_that_breaks_off_says_how_far_it_came_and_goes_on_there(run: Run, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    good = "".join(f'{{"value":"{n}"}}\n' for n in range(100_500))
    file.write_text(good + "no json\n")
    done = run(f"topic import {topic} in.jsonl", check=False)
    assert done.returncode == 2
    assert "100000 records are in" in done.stderr
    assert "line 100501 is not JSON" in done.stderr
    file.write_text(good)
    assert "100500 records" in run(f"topic import {topic} in.jsonl --resume").stdout
    read = run(f"consume {topic} -B -e").stdout.split()
    assert read[:100_000] == [str(n) for n in range(100_000)]
    assert set(read) == {str(n) for n in range(100_500)}
    assert not list(tmp_path.glob("*.imported"))


def test_a_group_is_moved_to_the_offsets_of_a_file(run: Run, topic: str, tmp_path: Path) -> None:
    run(f"produce {topic}", stdin="0\n1\n2\n3\n4\n")
    (tmp_path / "offsets.csv").write_text(f"{topic},0,3\n\n")
    shown = run(f"group reset g-{topic} --from-file offsets.csv --yes").stdout
    assert f"1 offsets of g-{topic} moved" in shown
    assert run(f"consume {topic} -e --group g-{topic}").stdout == "3\n4\n"
    (tmp_path / "offsets.csv").write_text(f"{topic},0,99\n")  # beyond the end: the plan shows what it will be
    rows = run(f"group reset g-{topic} --from-file offsets.csv --dry-run --json").stdout
    assert json.loads(rows)["to"] == 5
    (tmp_path / "offsets.csv").write_text("nothing-like-it,0,1\n")
    assert run(f"group reset g-{topic} --from-file offsets.csv --yes", check=False).returncode == 4


@pytest.mark.parametrize("folder", ["file", "file/below", "/proc/nowhere"])
def test_up_says_what_is_wrong_with_its_folder(folder: str, call: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    first = free_ports(2)
    refused = call(f"up --data-dir {folder} --port {first} --metrics-port {first + 1} --no-console", check=False)
    assert refused.returncode == 1
    assert f"{folder} cannot hold the data" in refused.stderr and "--data-dir" in refused.stderr
