"""Changes of a topic go to a topic, Delta, Iceberg and PostgreSQL at once, while everything is killed with -9.

The pipeline is applied; a runner runs it on a Spark standalone cluster. There are three runs: the first one is checked
when it has caught up; the second begins with a reset and is cut short by another one while it writes; the third one has
read everything again in the end. Inputs come with the kills, so there is always something to do.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from penstock.testing.broker_process import BrokerProcess
from penstock.testing.databases import postgres_server
from penstock.testing.spark_cluster import spark_cluster
from penstock.testing.spark_eos.inputs import Inputs
from penstock.testing.spark_eos.outputs import Finding, Outputs, left_open, penstock
from penstock.testing.spark_eos.pipeline import NAME, SOURCE, TARGET, Places
from penstock.testing.spark_eos.topics import create_topics, write
from penstock.testing.spark_eos.victims import RunnerProcess, Victims

PARTITIONS: Final = 4
_SHARES: Final = (0.5, 0.2, 0.3)  # of the kills and the inputs, by run
_PROGRESS_SECONDS: Final = 900.0  # then a pipeline that does nothing is a failure
_LONGEST_WAIT: Final = 5.0  # of a kill, after a batch was finished
_UNPREPARED: Final = 0.4  # so many kills follow the last one before a batch was finished


@dataclass
class Everywhere:
    rows: int
    seed: int
    kills: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)  # whatever else must not be
    seconds: float = 0.0

    @property
    def holds(self) -> bool:
        return bool(self.findings) and all(item.holds for item in self.findings) and not self.wrong

    def report(self) -> str:
        lines = [f"kills ({len(self.kills)}):", *[f"  {kill}" for kill in self.kills]]
        lines += [*map(str, self.findings), *self.wrong]
        end = "every input is once in each output, deletes applied" if self.holds else "NOT EXACTLY ONCE"
        return "\n".join([*lines, f"seed {self.seed}, {self.rows} rows, {self.seconds} s: {end}"])


class EverywhereProof:
    def __init__(self, *, rows: int, kills: int, seed: int, folder: Path, rows_per_batch: int | None = None) -> None:
        self._folder, self._kill_count = folder, kills
        self._rows_per_batch = rows_per_batch or max(200, rows // max(1, kills))
        self._chance = random.Random(seed)
        self._inputs = Inputs(seed, max(10, rows // 5), PARTITIONS)
        self.outcome = Everywhere(rows, seed)
        self._marks = ""
        self._began = time.monotonic()

    def run(self, deadline_s: float = 3600.0) -> Everywhere:
        self._deadline = time.monotonic() + deadline_s
        with (
            BrokerProcess(self._folder / "broker") as broker,
            postgres_server() as database,
            spark_cluster(self._folder / "spark", cores=2, memory="2g") as cluster,
        ):
            create_topics(broker.bootstrap, {SOURCE: PARTITIONS, TARGET: PARTITIONS})
            places = Places(self._folder, database, cluster.master, self._rows_per_batch)
            runner = RunnerProcess(broker.bootstrap, self._folder)
            victims = Victims(broker, cluster, runner, self._chance)
            try:
                runner.start()
                self._three_runs(broker.bootstrap, places, victims)
                penstock("pipeline", "stop", NAME, "-b", broker.bootstrap)
            finally:
                runner.stop()
                self.outcome.wrong += [f"still runs: {item}" for item in victims.left_behind()]
            self._check(Outputs(places, broker.bootstrap), run=3)
            self.outcome.findings += Outputs(places, broker.bootstrap).cut_short(self._inputs, run=2)
            self.outcome.wrong += left_open(broker.bootstrap)
        self.outcome.seconds = round(time.monotonic() - self._began, 1)
        return self.outcome

    def _three_runs(self, bootstrap: str, places: Places, victims: Victims) -> None:
        outputs = Outputs(places, bootstrap)
        kills_left, rows_left = self._kill_count, self.outcome.rows
        for run, share in enumerate(_SHARES, 1):
            kills = kills_left if run == len(_SHARES) else round(self._kill_count * share)
            rows = rows_left if run == len(_SHARES) else int(self.outcome.rows * share)
            kills_left, rows_left = kills_left - kills, rows_left - rows
            self._tell(f"run {run}: {rows} more rows, {kills} kills")
            penstock("pipeline", "apply", str(places.write_spec(run)), "-b", bootstrap, *["--reset"] * (run > 1))
            for number in range(kills):
                self._feed(bootstrap, rows // (kills - number))
                rows -= rows // (kills - number)
                self._kill(victims, outputs, run)
            self._feed(bootstrap, rows)
            if run != 2:  # which the next reset meets at work
                self._wait_for_all(outputs, run)
                if run == 1:
                    self._check(outputs, run)

    def _feed(self, bootstrap: str, count: int) -> None:
        changes = self._inputs.more(count)
        write(bootstrap, SOURCE, ((item.partition, item.key.encode(), item.value) for item in changes))

    def _kill(self, victims: Victims, outputs: Outputs, run: int) -> None:
        told = None
        while told is None:
            if self._chance.random() >= _UNPREPARED:
                self._wait_for_progress(outputs)
            time.sleep(self._chance.uniform(0.2, _LONGEST_WAIT))  # the moment of the kill, not a wait for something
            told = victims.kill_next()
        self._marks = outputs.marks()
        self.outcome.kills.append(f"{self._now()}s {told}, run {run}")
        self._tell(told)

    def _wait_for_progress(self, outputs: Outputs) -> None:
        """A batch was finished since the last kill, and another one is under way."""
        until = time.monotonic() + _PROGRESS_SECONDS
        while outputs.marks() == self._marks:
            self._insist_on_time(until, "no batch gets through")

    def _wait_for_all(self, outputs: Outputs, run: int) -> None:
        while not outputs.has_all(self._inputs, run):
            self._insist_on_time(self._deadline, f"run {run} does not catch up")
        self._tell(f"run {run} has everything")

    def _insist_on_time(self, until: float, what: str) -> None:
        if time.monotonic() > min(until, self._deadline):
            raise TimeoutError(f"{what}; see {self._folder}")
        time.sleep(0.2)

    def _check(self, outputs: Outputs, run: int) -> None:
        found = outputs.findings(self._inputs, run)
        for item in found:
            self._tell(f"run {run}, {item}")
            self.outcome.findings.append(replace(item, output=f"run {run}, {item.output}"))

    def _now(self) -> float:
        return round(time.monotonic() - self._began, 1)

    def _tell(self, line: str) -> None:
        print(f"{self._now():7.1f} s  {line}", flush=True)
