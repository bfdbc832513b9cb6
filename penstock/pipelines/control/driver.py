"""A driver: one process with one Spark, in which a runner lets pipelines of equal surroundings run.

Commands come as lines of JSON on standard input: `{"do": "start", "applied": …, "properties": …}` and `{"do": "stop",
"pipeline": …}`. When standard input ends, the runner is gone or wants the driver to stop: all its pipelines stop. What
the pipelines tell goes to standard output, a line each. A driver whose JVM dies ends at once; its runner does the rest.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from penstock.pipelines.control.hosted import FAILED, Hosted
from penstock.pipelines.control.store import Applied
from penstock.pipelines.execution import Place
from penstock.pipelines.secrets import Allowed, allow, resolve
from penstock.pipelines.sessions import is_remote, settle_environment
from penstock.pipelines.spec import PipelineSpec

CRASHED: Final = 5  # the exit code of a driver that lost its JVM
_LOOK_SECONDS: Final = 0.5
_LOST_SECONDS: Final = 3.0  # a JVM that dies takes a moment to be dead


class Driver:
    def __init__(self, state_dir: str, memory: str) -> None:
        self._state_dir, self._memory = state_dir, memory
        self._spark: Any = None
        self._starting = threading.Lock()
        self._speaking = threading.Lock()
        self._hosted: dict[str, Hosted] = {}
        self._threads: list[threading.Thread] = []

    def start(self, applied: Applied, properties: Mapping[str, str]) -> None:
        place = Place(properties, self._state_dir)
        hosted = self._hosted[applied.name] = Hosted(applied, place, self._spark_for, self._say, self._lost)
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        self._threads.append(threading.Thread(target=hosted.run, name=applied.name, daemon=True))
        self._threads[-1].start()

    def stop(self, pipeline: str) -> None:
        if pipeline in self._hosted:
            self._hosted[pipeline].stop()

    def stop_all(self, seconds: float) -> bool:
        """Whether all are over in time."""
        for hosted in list(self._hosted.values()):
            hosted.stop()
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _say(self, told: Mapping[str, Any]) -> None:
        with self._speaking, contextlib.suppress(BrokenPipeError):  # a runner that is gone needs no news
            sys.stdout.write(json.dumps(told) + "\n")
            sys.stdout.flush()

    # --- Spark ---

    def _spark_for(self, spec: PipelineSpec) -> Any:
        """Made for the first pipeline; the others have the same settings."""
        from penstock.pipelines.spark import web_ui
        from penstock.pipelines.spark.session import is_local, session

        with self._starting:
            if self._spark is None:
                pages = web_ui.settings(spec.settings.spark, local=is_local(spec.settings.master))
                ours = {"spark.driver.memory": self._memory, "spark.scheduler.mode": "FAIR", **pages}
                settings = {**ours, **resolve(spec.settings.spark)}
                made = session(
                    "penstock pipelines",
                    master=spec.settings.master,
                    settings=settings,
                    requirements=spec.settings.requirements,
                )
                if not is_remote(made):
                    settle_environment(made)
                    threading.Thread(target=self._watch_jvm, args=(made,), daemon=True).start()
                self._spark = made
            return self._spark

    def _watch_jvm(self, spark: Any) -> None:
        while not _is_jvm_dead(spark):
            time.sleep(_LOOK_SECONDS)
        self._crash()

    def _lost(self) -> None:
        """Called when a pipeline failed: if that is because the JVM died, it is no failure of that pipeline."""
        if self._spark is None or is_remote(self._spark):
            return
        deadline = time.monotonic() + _LOST_SECONDS
        while not self._answers() and time.monotonic() < deadline:
            if _is_jvm_dead(self._spark):
                self._crash()
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            self._spark.sparkContext._jvm.java.lang.System.nanoTime()
        except Exception:
            return False
        return True

    def _crash(self) -> None:
        sys.stderr.write("the driver's JVM died\n")
        sys.stderr.flush()
        os._exit(CRASHED)


def _is_jvm_dead(spark: Any) -> bool:
    return spark.sparkContext._gateway.proc.poll() is not None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--state-dir", required=True)
    parser.add_argument("--stop-seconds", type=float, default=20.0)
    parser.add_argument("--memory", default="1g")
    parser.add_argument("--env-prefix", default="")
    parser.add_argument("--secrets-dir")
    arguments = parser.parse_args()
    allow(Allowed(arguments.env_prefix, arguments.secrets_dir))
    driver = Driver(arguments.state_dir, arguments.memory)
    for line in sys.stdin:
        command = json.loads(line)
        if command["do"] == "start":
            driver.start(Applied(**command["applied"]), command["properties"])
        else:
            driver.stop(command["pipeline"])
    # A batch that does not end runs again next time.
    code = 0 if driver.stop_all(arguments.stop_seconds) else FAILED
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
    sys.stderr.flush()
    # Python would wait for Spark's threads; there is nothing left that they could do.
    os._exit(code)


if __name__ == "__main__":
    main()
