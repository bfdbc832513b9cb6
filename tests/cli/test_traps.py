"""What looks harmless must be harmless: outputs that are full, other clusters in the environment, misspelt names."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

import penstock
from penstock.operate.client_properties import LIBRDKAFKA
from penstock.operate.errors import UserError
from penstock.operate.reassignment_plan import even_plan
from penstock.operate.session import Session

from .conftest import Run


def _committed(run: Run, group: str) -> int:
    described = run(f"group describe {group} --json", check=False).stdout
    return sum(row["offset"] or 0 for row in json.loads(described)["offsets"]) if described else 0


def test_a_group_commits_only_what_the_output_has_taken(run: Run, topic: str, environment: dict[str, str]) -> None:
    run(f"produce {topic} -q", stdin="x" * 100 + "\n" + "y\n" * 20_000)
    with open("/dev/full", "wb") as full:  # noqa: PTH123
        done = subprocess.run(
            [sys.executable, "-m", "penstock.cli.main", "consume", topic, "-B", "-e", "-g", f"{topic}-readers"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
    assert done.returncode == 1
    assert "No space left" in done.stderr and "Traceback" not in done.stderr
    assert _committed(run, f"{topic}-readers") == 0


def test_a_member_ends_at_the_end_although_another_one_lives(run: Run, topic: str, environment: dict[str, str]) -> None:
    run(f"produce {topic} -q", stdin="".join(f"{n}\n" for n in range(100)))
    command = [sys.executable, "-m", "penstock.cli.main", "consume", topic, "-B", "-g", f"{topic}-both"]
    other = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
    assert other.stdout is not None
    try:
        assert other.stdout.readline()  # it is a member and reads
        ended = run(f"consume {topic} -B -e -g {topic}-both")
        assert ended.returncode == 0
    finally:
        other.terminate()
        other.communicate()


@pytest.fixture
def other_cluster() -> object:
    with penstock.Broker() as other:
        yield other


def test_a_named_profile_is_taken_whole(run: Run, topic: str, other_cluster: penstock.Broker) -> None:
    run(f"profile set other bootstrap.servers={other_cluster.bootstrap}")
    run(f"produce {topic} -q", stdin="a\nb\n")
    run(f"topic copy {topic} {topic} --to-profile other")  # PENSTOCK_BOOTSTRAP names the source
    assert run(f"consume {topic} -B -e").stdout.splitlines() == ["a", "b"]
    assert sorted(run(f"consume {topic} -B -e -p other").stdout.splitlines()) == ["a", "b"]


def test_a_profile_and_an_address_in_the_environment_contradict_each_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PENSTOCK_CONFIG", str(tmp_path / "profiles.toml"))
    (tmp_path / "profiles.toml").write_text('[a]\n"bootstrap.servers" = "a:1"\n"sasl.password" = "x"\n')
    monkeypatch.setenv("PENSTOCK_PROFILE", "a")
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", "b:2")
    with pytest.raises(UserError, match="both set"):
        Session(None, None, None)
    assert Session(None, "a", None).bootstrap == "a:1"


def test_the_password_of_the_default_profile_goes_to_its_own_cluster_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PENSTOCK_CONFIG", str(tmp_path / "profiles.toml"))
    monkeypatch.delenv("PENSTOCK_BOOTSTRAP", raising=False)
    (tmp_path / "profiles.toml").write_text('[default]\n"bootstrap.servers" = "a:1"\n"sasl.password" = "x"\n')
    assert Session(None, None, None).properties["sasl.password"] == "x"
    assert "sasl.password" not in Session("elsewhere:9092", None, None).properties


def test_a_topic_is_not_copied_onto_itself(run: Run, topic: str) -> None:
    run(f"produce {topic} -q", stdin="a\n")
    refused = run(f"topic copy {topic} {topic}", check=False)
    assert refused.returncode == 2 and "onto itself" in refused.stderr
    assert run(f"consume {topic} -B -e").stdout.splitlines() == ["a"]


def test_a_copy_has_the_partitions_settings_and_times_of_its_source(run: Run, topic: str) -> None:
    run(f"topic create {topic}-wide --partitions 5 --config retention.ms=777000")
    rows = [{"key": f"k{n}", "value": n, "partition": n % 5, "timestamp": 1_700_000_000_000 + n} for n in range(20)]
    run(f"produce {topic}-wide -f json -q", stdin="".join(json.dumps(row) + "\n" for row in rows))
    run(f"topic copy {topic}-wide {topic}-copy")
    form = r"-B -e -f '%p %T %k %s\n'"
    assert sorted(run(f"consume {topic}-copy {form}").stdout.splitlines()) == sorted(
        run(f"consume {topic}-wide {form}").stdout.splitlines()
    )
    assert "777000" in run(f"config get topic:{topic}-copy").stdout


def test_keys_go_where_java_clients_put_them(run: Run, topic: str) -> None:
    import numpy

    from penstock.protocol.columnar_encode import murmur2

    run(f"topic create {topic}-keyed --partitions 7")
    run(f"produce {topic}-keyed -K : -q", stdin="".join(f"key{n}:v\n" for n in range(50)))
    for line in run(rf"consume {topic}-keyed -B -e -f '%p %k\n'").stdout.splitlines():
        partition, key = line.split()
        hashed = int(murmur2(numpy.frombuffer(key.encode(), numpy.uint8), 0, len(key)))
        assert int(partition) == (hashed & 0x7FFFFFFF) % 7


def test_json_without_yes_moves_nothing(run: Run, topic: str) -> None:
    run(f"produce {topic} -q", stdin="a\nb\n")
    run(f"consume {topic} -B -e -g {topic}-g")
    before = _committed(run, f"{topic}-g")
    refused = run(f"group reset {topic}-g --to earliest --json", check=False)
    assert refused.returncode == 2 and "--yes" in refused.stderr
    assert _committed(run, f"{topic}-g") == before == 2


def test_a_plan_never_loses_replicas() -> None:
    with pytest.raises(UserError, match="3 replicas"):
        even_plan({("orders", 0): [1, 2, 3]}, [2])


@pytest.mark.parametrize(
    ("row", "code", "said"),
    [
        ('{"Value": "x"}', 2, "did you mean 'value'"),
        ('{"value": "x", "partition": 99}', 4, "--repartition"),
        ('{"value": "x", "partition": "0"}', 2, "is no partition"),
        ('{"value": "x", "colour": 1}', 2, "there is no field 'colour'"),
    ],
)
def test_a_json_record_with_a_mistake_is_refused(call: Run, topic: str, row: str, code: int, said: str) -> None:
    refused = call(f"produce {topic} -f json", stdin=row + "\n", check=False)
    assert refused.returncode == code and said in refused.stderr, refused.stderr
    assert call(f"consume {topic} -B -e", check=False).stdout == ""


def test_a_partition_that_is_not_there_is_one_mistake_with_one_exit_code(call: Run, topic: str, tmp_path: Path) -> None:
    (tmp_path / "offsets.csv").write_text(f"{topic},9,0\n")
    (tmp_path / "plan.json").write_text(json.dumps({"partitions": [{"topic": topic, "partition": 9, "replicas": [1]}]}))
    for line in (
        f"consume {topic} --partition 9 -e",
        f"consume {topic} -o 9:0 -e",
        f"produce {topic} --partition 9",
        f"topic trim {topic} --offset 9:0 --yes",
        f"group reset g -t {topic}:9 --to latest --yes",
        "group reset g --from-file offsets.csv --yes",
        f"partition elect -t {topic} --partition 9",
        "partition reassign --plan plan.json --yes",
    ):
        refused = call(line, stdin="x\n", check=False)
        assert refused.returncode == 4, line
        assert f"{topic} has no partition 9" in refused.stderr, line


def test_what_consume_prints_produce_reads_to_the_byte(run: Run, topic: str) -> None:
    run(f"topic create {topic}-a --partitions 3")
    rows = [
        {"key": None, "value": None, "partition": 2, "timestamp": 1_700_000_000_001},
        {"key": "", "value": "", "partition": 0, "timestamp": 1_700_000_000_002},
        {"key": "/w==", "key_encoding": "base64", "value": "AAEC", "value_encoding": "base64", "partition": 1,
         "timestamp": 1_700_000_000_003, "headers": [["h", None], ["h", "x"], ["b", "/w==", "base64"]]},
    ]  # fmt: skip
    run(f"produce {topic}-a -f json -q", stdin="".join(json.dumps(row) + "\n" for row in rows))
    printed = run(f"consume {topic}-a -B -e --json").stdout
    run(f"topic create {topic}-b --partitions 3")
    run(f"produce {topic}-b -f json -q", stdin=printed)
    again = run(f"consume {topic}-b -B -e --json").stdout

    def without_topic(text: str) -> list[str]:
        return sorted(json.dumps({**json.loads(line), "topic": ""}) for line in text.splitlines())

    assert without_topic(again) == without_topic(printed)


@pytest.mark.parametrize("command", ["topic list", "group list", "produce t", "consume t -e", "broker list", "doctor"])
def test_a_misspelt_client_property_is_an_error_everywhere(run: Run, command: str) -> None:
    refused = run(f"{command} -X security.protocl=SASL_SSL", check=False)
    assert refused.returncode == 2
    assert "security.protocl" in refused.stderr and "did you mean security.protocol?" in refused.stderr


def test_librdkafka_knows_every_property_that_we_take_for_its_own() -> None:
    from confluent_kafka import KafkaException, Producer

    unknown = []
    for name in sorted(LIBRDKAFKA):
        try:
            Producer({name: name == "delivery.report.only.error" or "\x01", "log_level": 0})
        except KafkaException as error:
            if "No such configuration property" in error.args[0].str():
                unknown.append(name)
    assert unknown == []


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("partition status --topic nope", 4, "no topic 'nope'"),
        ("group list --state Foo", 2, "Stable"),
        ("log dump /etc", 2, "holds no log"),
        ("up --port 99999", 2, "65535"),
    ],
)
def test_a_mistake_is_told_and_not_taken_for_all_is_well(run: Run, command: str, code: int, said: str) -> None:
    refused = run(command, check=False)
    assert refused.returncode == code, refused.stderr
    assert said in refused.stderr + refused.stdout and "Traceback" not in refused.stderr


@pytest.mark.parametrize("words", [["topic", "create"], ["consume"], ["group", "reset"], ["up"], ["broker"]])
def test_a_short_h_helps_and_shows_an_example(words: list[str], environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "penstock.cli.main", *words, "-h"]
    shown = subprocess.run(command, capture_output=True, text=True, env={**environment, "COLUMNS": "100"})
    assert shown.returncode == 0
    assert f"penstock {' '.join(words)}" in shown.stdout.split("Example")[-1], shown.stdout


def test_records_of_others_do_not_disturb_a_measurement(call: Run, topic: str, broker: penstock.Broker) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap})
    ended = threading.Event()

    def disturb() -> None:
        while not ended.wait(0.002):
            producer.produce(topic, b"\xff foreign")
            producer.produce(topic, None, b"a tombstone")
            producer.flush()

    other = threading.Thread(target=disturb)
    other.start()
    try:
        measured = json.loads(call(f"perf end-to-end {topic} -n 30 --rate 100 --json").stdout)
    finally:
        ended.set()
        other.join()
    assert measured["records"] == 30 and measured["p50_ms"] > 0


def test_damaged_dead_letters_are_shown_and_redriven_all_the_same(call: Run, topic: str) -> None:
    headers = {"penstock.dlq.topic": topic, "penstock.dlq.partition": "x", "penstock.dlq.offset": "-",
               "penstock.dlq.timestamp": "soon", "penstock.dlq.reason": "broken"}  # fmt: skip
    call(f"produce {topic}.dlq -f json", stdin=json.dumps({"value": "a", "headers": headers}) + "\n")
    assert json.loads(call(f"dlq show {topic} --json").stdout)["source_partition"] is None
    assert "broken" in call(f"dlq show {topic}").stdout
    call(f"dlq redrive {topic}")
    assert call(f"consume {topic} -B -e").stdout == "a\n"


@pytest.mark.parametrize("line", ["--help", "--version", "topic list --help", "broker list"])
@pytest.mark.parametrize(
    ("output", "code", "message"), [(">/dev/full", 1, "No space left"), (">&-", 1, "standard output is closed")]
)
def test_an_output_that_takes_nothing_is_told(run: Run, line: str, output: str, code: int, message: str) -> None:
    done = run(f"penstock {line} {output}", check=False)
    assert done.returncode == code
    assert message in done.stderr and len(done.stderr.splitlines()) == 2


def test_a_group_commits_nothing_into_a_closed_output(run: Run, topic: str) -> None:
    run(f"produce {topic} -q", stdin="a\n")
    assert run(f"penstock consume {topic} -B -e -g {topic}-closed >&-", check=False).returncode == 1
    assert _committed(run, f"{topic}-closed") == 0


def test_help_into_a_closed_pipe_is_quiet(run: Run) -> None:
    done = run("penstock --help | true; echo ${PIPESTATUS[0]}")
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_names_that_others_chose_neither_steer_the_terminal_nor_run_in_the_shell(
    run: Run, topic: str, broker: penstock.Broker
) -> None:
    hostile = "\x1b]0;owned\x07\u202e$(touch pwned)\nok  all is well"
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": hostile})
    run(f"produce {topic} -q -f json", stdin='{"value": "a", "partition": 0, "timestamp": 1600000000000}\n')
    consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    consumer.close()
    listed = run("group list").stdout
    assert "\\x1b]0;owned\\x07\\u202e$(touch pwned)\\nok  all is well" in listed
    absent = run("group describe absent", check=False).stderr
    for shown in (listed, absent):
        assert "\x1b" not in shown and "\u202e" not in shown
    findings = [json.loads(line) for line in run("doctor --json", check=False).stdout.splitlines()]
    (hint,) = [row["hint"] for row in findings if row["check"] == "lag" and "touch" in row["finding"]]
    assert shlex.split(hint.strip("`")) == ["penstock", "group", "describe", hostile]
    run(f"group delete {shlex.quote(hostile)} --yes")


def test_producing_to_a_topic_that_nobody_makes_says_so(run: Run) -> None:
    done = run("produce absent-topic -X allow.auto.create.topics=false", stdin="a\n", check=False)
    assert done.returncode == 4 and "there is no topic 'absent-topic'" in done.stderr
    wrong = run("produce 'no name'", stdin="a\n", check=False)
    assert wrong.returncode == 5 and "no name for a topic" in wrong.stderr
