"""Who is killed: executors of a Spark cluster, drivers of a runner, the runner and the broker.

A killed runner and a killed broker are started again; executors are replaced by their worker, drivers by their runner.
What a killed runner leaves behind must end by itself.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from penstock.testing.broker_process import BrokerProcess
from penstock.testing.spark_cluster import SparkCluster
from penstock.testing.spark_eos.processes import Seen, all_processes, kill

# Every one has its turn; those after which Spark must start anew are rarer.
KINDS: Final = (*["executor"] * 6, *["broker"] * 4, "driver", "jvm", "runner")
_DRIVER: Final = "penstock.pipelines.control.driver"
_EXECUTOR: Final = "CoarseGrainedExecutorBackend"
_LAST_SECONDS: Final = 60.0  # for processes whose parents were killed


class RunnerProcess:
    """`penstock pipeline runner`, to be killed with -9 and started again."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self._bootstrap, self._folder = bootstrap, folder
        self.state_dir = folder / "state"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        command = [sys.executable, "-m", "penstock", "pipeline", "runner", "-b", self._bootstrap]
        # So long a killed runner's share waits for the next one.
        command += ["-X", "session.timeout.ms=20000", "--state-dir", str(self.state_dir)]
        with (self._folder / "runner.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_LAST_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None


class Victims:
    def __init__(
        self, broker: BrokerProcess, cluster: SparkCluster, runner: RunnerProcess, chance: random.Random
    ) -> None:
        self._broker, self._cluster, self._runner, self._chance = broker, cluster, runner, chance
        self._waiting: list[str] = []
        self._sessions: set[int] = set()  # each driver has its own

    # --- what there is ---

    def _executors(self, seen: list[Seen]) -> list[int]:
        return [item.pid for item in seen if item.parent in self._cluster.workers and _EXECUTOR in item.command]

    def _drivers(self, seen: list[Seen]) -> list[int]:
        """Those of a runner that was killed are among them, until they have noticed."""
        found = [item.pid for item in seen if _DRIVER in item.command and str(self._runner.state_dir) in item.command]
        self._sessions.update(found)
        return found

    # --- killing ---

    def kill_next(self) -> str | None:
        """What was killed; None if there was nobody of the kind whose turn it was."""
        if not self._waiting:  # drawn without putting back, so that every kind has its turn
            self._waiting = list(KINDS)
            self._chance.shuffle(self._waiting)
        kind = self._waiting.pop()
        choose: dict[str, Callable[[], str | None]] = {
            "executor": self._kill_executor, "driver": self._kill_driver, "jvm": self._kill_jvm,
            "broker": self._kill_broker, "runner": self._kill_runner,
        }  # fmt: skip
        told = choose[kind]()
        if told is None:
            self._waiting.insert(0, kind)
        return told

    def _kill_executor(self) -> str | None:
        return self._kill_one_of("executor", self._executors(list(all_processes())))

    def _kill_driver(self) -> str | None:
        return self._kill_one_of("driver", self._drivers(list(all_processes())))

    def _kill_jvm(self) -> str | None:
        seen = list(all_processes())
        drivers = set(self._drivers(seen))
        return self._kill_one_of(
            "driver's JVM", [item.pid for item in seen if _is_jvm(item) and item.parent in drivers]
        )

    def _kill_one_of(self, kind: str, candidates: list[int]) -> str | None:
        if not candidates:
            return None
        pid = self._chance.choice(sorted(candidates))
        kill(pid)
        return f"{kind} pid {pid}"

    def _kill_broker(self) -> str:
        pid = self._broker.pid
        self._broker.kill()
        time.sleep(self._chance.uniform(0.0, 2.0))  # how long it stays away, not a wait for something
        self._broker.start()
        return f"broker pid {pid}"

    def _kill_runner(self) -> str:
        self._drivers(list(all_processes()))
        pid = self._runner.pid
        self._runner.kill()
        self._runner.start()
        return f"runner pid {pid}"

    # --- the end ---

    def left_behind(self) -> list[str]:
        """What drivers have left running although their runner is gone; it is ended."""
        self._drivers(list(all_processes()))
        deadline = time.monotonic() + _LAST_SECONDS
        while True:
            left = [item for item in all_processes() if item.session in self._sessions and item.pid != os.getpid()]
            if not left or time.monotonic() > deadline:
                break
            time.sleep(0.2)
        for item in left:
            kill(item.pid)
        return [f"{item.pid} {item.command[:150]}" for item in left]


def _is_jvm(item: Seen) -> bool:
    return "org.apache.spark.deploy.SparkSubmit" in item.command
