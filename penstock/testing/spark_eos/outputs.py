"""What came out, read with other means than it was written with, and compared with what must be there."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.testing.spark_eos.inputs import Inputs
from penstock.testing.spark_eos.pipeline import HISTORY, MERGED, TARGET, Places
from penstock.testing.spark_eos.topics import read_committed

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Finding:
    """One output. All numbers but `rows` must be 0."""

    output: str
    rows: int
    missing: int
    repeated: int
    wrong: int  # other content, or nothing that was ever asked for

    @property
    def holds(self) -> bool:
        return not (self.missing or self.repeated or self.wrong)

    def __str__(self) -> str:
        return f"{self.output}: {self.rows} rows, {self.missing} missing, {self.repeated} repeated, {self.wrong} wrong"


def history_finding(output: str, rows: Iterable[Row], inputs: Inputs, run: int, *, complete: bool = True) -> Finding:
    """Each input once among the rows of this run; of a run that was cut short, at most once."""
    seen: Counter[tuple[int, int]] = Counter()
    count = wrong = 0
    for row in rows:
        if row["run"] != run:
            continue
        count += 1
        position = (row["p"], row["o"])
        change = inputs.written.get(position)
        if change is None or (change.key, change.number) != (row["k"], row.get("i")):
            wrong += 1
        seen[position] += 1
    missing = len(inputs.written.keys() - seen.keys()) if complete else 0
    return Finding(output, count, missing, sum(times > 1 for times in seen.values()), wrong)


def merged_finding(output: str, rows: Iterable[Row], inputs: Inputs, run: int) -> Finding:
    """One row per key that was not deleted, the last one, written by this run."""
    seen: Counter[str] = Counter()
    wrong = 0
    for row in rows:
        seen[row["k"]] += 1
        wrong += inputs.latest.get(row["k"]) != row["i"] or row["run"] != run
    missing = len(inputs.latest.keys() - seen.keys())
    return Finding(output, sum(seen.values()), missing, sum(times > 1 for times in seen.values()), wrong)


class Outputs:
    def __init__(self, places: Places, bootstrap: str) -> None:
        self._places, self._bootstrap = places, bootstrap

    def histories(self) -> Iterator[tuple[str, Iterable[Row]]]:
        yield "topic", (json.loads(value) for value in read_committed(self._bootstrap, TARGET))
        yield "Delta, appended", self._delta(HISTORY)
        yield "Iceberg, appended", self._iceberg(HISTORY)
        yield "PostgreSQL, appended", self._postgres(f"SELECT k, i, p, o, run FROM {HISTORY}")

    def merged(self) -> Iterator[tuple[str, Iterable[Row]]]:
        yield "Delta, merged", self._delta(MERGED)
        yield "Iceberg, merged", self._iceberg(MERGED)
        yield "PostgreSQL, merged", self._postgres(f"SELECT k, i, run FROM {MERGED}")

    def findings(self, inputs: Inputs, run: int) -> list[Finding]:
        found = [history_finding(name, rows, inputs, run) for name, rows in self.histories()]
        return found + [merged_finding(name, rows, inputs, run) for name, rows in self.merged()]

    def cut_short(self, inputs: Inputs, run: int) -> list[Finding]:
        """Of a run that a reset has ended: nothing twice."""
        return [
            history_finding(f"{name}, run {run}", rows, inputs, run, complete=False) for name, rows in self.histories()
        ]

    def has_all(self, inputs: Inputs, run: int) -> bool:
        """Whether PostgreSQL, which is written last, has as much as it should have."""
        latest = inputs.latest
        try:
            (history,) = self._postgres(f"SELECT count(*) AS n FROM {HISTORY} WHERE run = {run}")
            (merged,) = self._postgres(
                f"SELECT count(*) AS n, coalesce(sum(i), 0) AS total, coalesce(min(run), 0) AS run FROM {MERGED}"
            )
        except LookupError:
            return False
        is_merged = (merged["n"], merged["total"], merged["run"]) == (len(latest), sum(latest.values()), run)
        return bool(history["n"] >= len(inputs.written) and is_merged)

    def marks(self) -> str:
        """What PostgreSQL remembers: another text whenever a batch was finished."""
        try:
            return str(self._postgres("SELECT name, mark FROM penstock_marks ORDER BY name"))
        except LookupError:
            return ""

    # --- readers ---

    def _delta(self, table: str) -> list[Row]:
        from deltalake import DeltaTable

        return list(DeltaTable(self._places.delta(table)).to_pyarrow_table().to_pylist())

    def _iceberg(self, table: str) -> list[Row]:
        from pyiceberg.catalog import load_catalog

        return list(
            load_catalog("default", **self._places.catalog).load_table(f"eos.{table}").scan().to_arrow().to_pylist()
        )

    def _postgres(self, query: str) -> list[Row]:
        """LookupError if there is no such table yet."""
        import psycopg
        from psycopg.rows import dict_row

        with psycopg.connect(self._places.database, row_factory=dict_row) as connection:
            try:
                return list(connection.execute(query.encode()).fetchall())
            except psycopg.errors.UndefinedTable as error:
                raise LookupError(str(error)) from None


def penstock(*arguments: str) -> list[dict[str, Any]]:
    """What a command says, with --json; RuntimeError if it fails, exit code 7 (doctor found problems) apart."""
    done = subprocess.run(
        [sys.executable, "-m", "penstock", *arguments, "--json"], capture_output=True, text=True, check=False
    )
    if done.returncode not in (0, 7):
        raise RuntimeError(f"penstock {' '.join(arguments)}: {done.stderr or done.stdout}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def left_open(bootstrap: str) -> list[str]:
    """Transactions that somebody must still end, and what `doctor` has to say about transactions or as a problem."""
    is_open = ("Ongoing", "PrepareCommit", "PrepareAbort")
    rows = penstock("txn", "list", "-b", bootstrap)
    told = [f"transaction {row['id']} is {row['state']}" for row in rows if row["state"] in is_open]
    for row in penstock("doctor", "-b", bootstrap):
        is_about_them = "transaction" in f"{row['check']} {row['finding']}".lower() and row["severity"] != "ok"
        if row["severity"] == "problem" or is_about_them:
            told.append(f"doctor: {row['severity']} {row['check']}: {row['finding']}")
    return told
