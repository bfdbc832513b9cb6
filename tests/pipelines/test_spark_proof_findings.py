"""The exactly-once proof on Spark would notice: each way in which an output can be wrong is a finding."""

from __future__ import annotations

from typing import Any

from penstock.testing.spark_eos.inputs import Inputs
from penstock.testing.spark_eos.outputs import history_finding, merged_finding


def inputs() -> Inputs:
    made = Inputs(seed=3, keys=20, partitions=2)
    made.more(200)
    return made


def history(given: Inputs, run: int = 1) -> list[dict[str, Any]]:
    return [
        {"p": partition, "o": offset, "k": change.key, "i": change.number, "run": run}
        for (partition, offset), change in given.written.items()
    ]


def merged(given: Inputs, run: int = 1) -> list[dict[str, Any]]:
    return [{"k": key, "i": number, "run": run} for key, number in given.latest.items()]


def test_inputs_come_again_from_their_seed_with_deletes_and_each_key_in_one_partition() -> None:
    first, second = inputs(), inputs()
    assert first.written == second.written and first.latest == second.latest
    partitions = {(change.key, change.partition) for change in first.written.values()}
    assert len(partitions) == len({key for key, _ in partitions})
    last = {change.key: change.number for change in first.written.values() if change.partition == 0}
    assert None in last.values()  # deleted in the end
    assert {key: number for key, number in last.items() if number is not None}.items() <= first.latest.items()
    assert all(key not in first.latest for key, number in last.items() if number is None)


def test_an_appended_output_must_have_each_input_once() -> None:
    given = inputs()
    rows = history(given)
    right = history_finding("x", rows, given, 1)
    assert right.holds and right.rows == 200
    assert history_finding("x", rows[1:], given, 1).missing == 1
    assert history_finding("x", [*rows, rows[5]], given, 1).repeated == 1
    assert history_finding("x", [*rows[1:], {**rows[0], "k": "other"}], given, 1).wrong == 1
    assert history_finding("x", [*rows, {**rows[0], "o": 999}], given, 1).wrong == 1
    assert history_finding("x", rows, given, 2).missing == 200
    cut_short = history_finding("x", [*rows[:7], rows[0]], given, 1, complete=False)
    assert cut_short.missing == 0 and cut_short.repeated == 1 and not cut_short.holds


def test_a_merged_output_must_have_the_last_row_of_each_key_that_was_not_deleted() -> None:
    given = inputs()
    rows = merged(given)
    assert merged_finding("x", rows, given, 1).holds
    assert merged_finding("x", rows[1:], given, 1).missing == 1
    assert merged_finding("x", [*rows, rows[0]], given, 1).repeated == 1
    assert merged_finding("x", [*rows, {"k": "deleted", "i": 1, "run": 1}], given, 1).wrong == 1
    assert merged_finding("x", [{**rows[0], "i": -1}, *rows[1:]], given, 1).wrong == 1
    assert merged_finding("x", rows, given, 2).wrong == len(rows)  # of the run before
