"""Records through pipes: large blocks keep their order and their ends, and wrong input says what was written."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_many_lines_come_back_in_order_whatever_their_size(run: Run, topic: str, tmp_path: Path) -> None:
    lines = [f"{n} " + "x" * (n * 37 % 300) for n in range(40_000)]
    lines[3], lines[20_000], lines[39_999] = "", "y" * 300_000, "no newline behind me"
    (tmp_path / "in").write_text("\n".join(lines))
    run(f"penstock produce {topic} < in | cat")
    run(f"penstock consume {topic} -B -e | cat > out")
    assert (tmp_path / "out").read_text() == "\n".join(lines) + "\n"


def test_keys_and_tombstones_go_through_blocks_too(run: Run, topic: str) -> None:
    lines = [f"k{n % 7}→{'' if n % 5 == 0 else n}" for n in range(25_000)]
    run(f"produce {topic} -K → -Z", stdin="\n".join(lines) + "\n")
    shown = run(rf"consume {topic} -B -e --format '%k→%s %S\n'").stdout.splitlines()
    assert len(shown) == len(lines)
    assert shown[:2] == ["k0→ -1", "k1→1 1"]
    assert run(f"consume {topic} -B -e").stdout == "".join(f"{line.partition('→')[2]}\n" for line in lines)


def test_an_end_in_the_middle_of_a_batch_is_kept(run: Run, topic: str) -> None:
    run(f"topic create {topic}-3 -n 3")
    run(f"produce {topic}-3 -K :", stdin="".join(f"k{n}:{n}\n" for n in range(30_000)))
    run(f"produce {topic} --transactional", stdin="a\nb\n")  # its last offset is a marker that nobody sees
    both = run(f"consume {topic}-3 {topic} -B -e").stdout.split()
    assert sorted(both) == sorted([*map(str, range(30_000)), "a", "b"])
    assert len(run(f"consume {topic}-3 -B -n 12345").stdout.split()) == 12_345
    group = f"g-{topic}"
    first = run(f"consume {topic}-3 -B -n 12345 --group {group}").stdout.split()
    assert first + run(f"consume {topic}-3 -e --group {group}").stdout.split() != first
    lag = json.loads(run(f"group describe {group} --json").stdout)["offsets"]
    assert sum(row["lag"] for row in lag) == 0


@pytest.mark.parametrize(
    ("options", "stdin", "message"),
    [
        ("-K :", "a:1\nb:2\nbad\nc:3\n", "line 3 has no key separator"),
        ("-f json", '{"value": 1}\n{"value": 2}\n[1]\n', "line 3 is no JSON object"),
        ("-f json", '{"value": 1}\n{"value": 2}\n{"timestamp": "x"}\n', "line 3, timestamp"),
        ("-f json", '{"value": 1}\n{"value": 2}\n{"headers": [1]}\n', "line 3, headers"),
        ("-f json", '{"value": 1}\n{"value": 2}\n{"key": 5, "key_encoding": "base64"}\n', "line 3, key: not base64"),
    ],
)
def test_wrong_input_in_the_middle_says_where_and_what_was_written(
    run: Run, topic: str, options: str, stdin: str, message: str
) -> None:
    done = run(f"produce {topic} {options}", stdin=stdin, check=False)
    assert done.returncode == 2
    assert "2 records were written" in done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert run(f"consume {topic} -B -e").stdout.split() == ["1", "2"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (r"-K '\x'", "position 1"),
        (r"-K 'ab\'", "position 3: a single"),
        ("-K ''", "is empty"),
        ("-K : -k a", "contradict"),
        ("--rate -1", "--rate"),
        ("--partition -2", "--partition"),
    ],
)
def test_malformed_options_of_produce_are_refused_before_anything_is_written(
    run: Run, topic: str, options: str, message: str
) -> None:
    done = run(f"produce {topic} {options}", stdin="a:1\n", check=False)
    assert done.returncode == 2
    assert message in done.stderr
    assert run(f"consume {topic} -B -e").stdout == ""


def test_a_record_that_is_too_large_is_named_and_the_others_are_counted(run: Run, topic: str) -> None:
    done = run(f"produce {topic}", stdin="one\n" + "x" * 2_000_000 + "\nthree\n", check=False)
    assert done.returncode == 5
    assert "record 2: " in done.stderr
    assert "2 records were written" in done.stderr
    assert "message.max.bytes" in done.stderr
    assert run(f"consume {topic} -B -e").stdout.split() == ["one", "three"]


def test_produce_without_input_or_partition_says_so(run: Run, topic: str) -> None:
    closed = run(f"penstock produce {topic} <&- | cat", check=False)
    assert closed.returncode == 2
    assert "standard input is closed" in closed.stderr
    nowhere = run(f"produce {topic} --partition 9", stdin="x\n", check=False)
    assert nowhere.returncode == 4
    assert "has no partition 9" in nowhere.stderr


def test_produce_without_a_broker_has_the_exit_code_for_that(run: Run) -> None:
    done = run("produce t -b 127.0.0.1:1", stdin="x\n", check=False)
    assert done.returncode == 3
    assert "no broker answers" in done.stderr
    assert "127.0.0.1:1" in done.stderr
