"""Rows go topic → Spark → topic while driver, executors and broker are killed with -9.

In the end every input must be in the read_committed output once, and no transaction may be left open. Against Apache
Kafka there is no two-phase commit, so the pipeline is a repeatable one, and the broker is left alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from penstock.testing.broker_process import BrokerProcess
from penstock.testing.spark_eos.processes import processes_of_session
from penstock.testing.spark_eos.topics import create_topics, fill, open_transactions, read_committed

SOURCE, TARGET = "eos-in", "eos-out"
PARTITIONS = 4


@dataclass
class Outcome:
    rows: int
    seed: int
    kills: list[str] = field(default_factory=list)
    driver_starts: int = 0
    found: int = 0
    missing: int = 0
    repeated: int = 0
    open_transactions: int = 0
    seconds: float = 0.0

    @property
    def holds(self) -> bool:
        return self.found == self.rows and not (self.missing or self.repeated or self.open_transactions)


class Proof:
    """One run. `kinds` are what may be killed: driver, executor, broker."""

    def __init__(
        self, *, rows: int, kills: int, seed: int, folder: Path, kinds: tuple[str, ...], master: str = "local[2,8]"
    ) -> None:
        self.rows, self.kills, self.kinds, self.master = rows, kills, kinds, master
        self.folder = folder
        self.outcome = Outcome(rows, seed)
        self._random = random.Random(seed)
        self._rows_per_batch = max(200, rows // (max(1, kills) * 4))
        self._waiting_kinds: list[str] = []
        self._driver: subprocess.Popen[bytes] | None = None
        self._started = time.monotonic()

    def run(self, broker: BrokerProcess | None, bootstrap: str, deadline_s: float = 3600.0) -> Outcome:
        create_topics(bootstrap, {SOURCE: PARTITIONS, TARGET: PARTITIONS})
        fill(bootstrap, SOURCE, self.rows)
        pipeline = "random" if broker is not None else "repeatable"
        with (self.folder / "driver.log").open("ab") as log:
            try:
                self._kill_and_restart(broker, bootstrap, pipeline, log, time.monotonic() + deadline_s)
            finally:
                self._end_driver()
        self._check(bootstrap)
        self.outcome.seconds = round(time.monotonic() - self._started, 1)
        return self.outcome

    # --- the killing ---

    def _kill_and_restart(
        self, broker: BrokerProcess | None, bootstrap: str, pipeline: str, log: IO[bytes], deadline: float
    ) -> None:
        next_kill = self._next_kill()
        while True:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the proof did not end in time; see {self.folder}")
            if self._driver is None:
                self._driver = self._start_driver(bootstrap, pipeline, log)
                next_kill = self._next_kill()
            status = self._driver.poll()
            if status == 0:
                return
            if status is not None:
                self._driver = None  # died of a kill, or failed because of one: Spark's checkpoint takes over
                continue
            if not self._is_working():
                next_kill = max(next_kill, time.monotonic() + self._random.uniform(0.2, 3.0))
            elif len(self.outcome.kills) < self.kills and time.monotonic() >= next_kill:
                self._kill(self._next_kind(), broker)
                next_kill = self._next_kill()
            time.sleep(0.05)

    def _next_kind(self) -> str:
        """Drawn without putting back, so that every kind has its turn."""
        if not self._waiting_kinds:
            self._waiting_kinds = list(self.kinds)
            self._random.shuffle(self._waiting_kinds)
        return self._waiting_kinds.pop()

    def _next_kill(self) -> float:
        return time.monotonic() + self._random.uniform(0.5, 6.0)

    def _start_driver(self, bootstrap: str, pipeline: str, log: IO[bytes]) -> subprocess.Popen[bytes]:
        self.outcome.driver_starts += 1
        if self.outcome.driver_starts > self.kills * 3 + 5:
            raise RuntimeError(f"the driver fails by itself; see {self.folder / 'driver.log'}")
        arguments = [bootstrap, SOURCE, TARGET, str(self.folder / "checkpoint"), str(self._rows_per_batch), self.master]
        return subprocess.Popen(
            [sys.executable, "-m", "penstock.testing.spark_eos.topic_driver", *arguments, pipeline],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    def _is_working(self) -> bool:
        """Workers of tasks exist only while batches run: before that a kill would only hit Spark's start."""
        assert self._driver is not None
        return any(processes_of_session(self._driver.pid, ("pyspark.daemon pyspark.worker",)))

    def _executors(self) -> list[int]:
        assert self._driver is not None
        return list(processes_of_session(self._driver.pid, ("pyspark.daemon", "CoarseGrainedExecutorBackend")))

    def _kill(self, kind: str, broker: BrokerProcess | None) -> None:
        assert self._driver is not None
        at = round(time.monotonic() - self._started, 1)
        if kind == "driver":
            # The Python workers are a group of their own and live on for a moment: attempts that nobody waits for.
            os.killpg(self._driver.pid, signal.SIGKILL)
            self._driver.wait()
            self.outcome.kills.append(f"{at}s driver pid {self._driver.pid}")
        elif kind == "executor":
            candidates = self._executors()
            if candidates:
                victim = self._random.choice(candidates)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
                self.outcome.kills.append(f"{at}s executor pid {victim}")
        elif broker is not None:
            pid = broker.pid
            broker.kill()
            time.sleep(self._random.uniform(0.0, 2.0))  # how long it stays away, not a wait for something
            broker.start()
            self.outcome.kills.append(f"{at}s broker pid {pid}")

    def _end_driver(self) -> None:
        if self._driver is not None:
            for pid in processes_of_session(self._driver.pid, ("",)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._driver.wait()

    # --- the checking ---

    def _check(self, bootstrap: str) -> None:
        seen = bytearray(self.rows)
        for value in read_committed(bootstrap, TARGET):
            index = int(value.split(b" ", 1)[0])
            seen[index] = min(255, seen[index] + 1)
            self.outcome.found += 1
        self.outcome.missing = seen.count(0)
        self.outcome.repeated = self.rows - seen.count(0) - seen.count(1)
        self.outcome.open_transactions = open_transactions(bootstrap)


def report(outcome: Outcome) -> str:
    lines = [f"  {kill}" for kill in outcome.kills]
    summary: dict[str, Any] = {key: value for key, value in vars(outcome).items() if key != "kills"}
    return "\n".join(
        [
            f"kills ({len(outcome.kills)}):",
            *lines,
            json.dumps(summary),
            f"seed {outcome.seed}: {'every input appears exactly once' if outcome.holds else 'NOT EXACTLY ONCE'}",
        ]
    )
