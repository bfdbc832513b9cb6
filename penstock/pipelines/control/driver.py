"""One pipeline in one process with one Spark driver; started by a runner, which talks to it over standard input.

The first line of standard input is the applied pipeline. When standard input ends, the runner is gone or wants the
driver to stop: it stops. Events go to `__penstock_progress` and, for the runner's metrics, to standard output.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from penstock.pipelines import ending
from penstock.pipelines.control import events
from penstock.pipelines.control.store import Applied
from penstock.pipelines.execution import Execution, PipelineFailed, Place
from penstock.pipelines.problems import reason_of
from penstock.pipelines.progress import summary
from penstock.pipelines.secrets import Allowed, allow, redacted, resolve
from penstock.pipelines.spec import SpecError

# Exit codes, for the runner.
FINISHED, FAILED, REFUSED, FENCED = 0, 1, 3, 4
PROGRESS_SECONDS: Final = 1.0


class Driver:
    def __init__(self, applied: Applied, place: Place) -> None:
        self._applied, self._place = applied, place
        self._stop = threading.Event()
        self._writer: events.EventWriter | None = None
        self._fenced: str | None = None
        self._told_at: dict[str, float] = {}
        self._last_event_at = 0.0
        self._lock = threading.Lock()

    def run(self) -> int:
        try:
            self._writer = events.EventWriter(self._place.properties, self._applied.name)
            self._tell(events.STATE, state="starting")
            threading.Thread(target=self._keep_telling, daemon=True).start()
            self._run()
        except events.Fenced as error:
            return self._end(FENCED, str(error))
        except SpecError as error:
            return self._fail(REFUSED, str(error))
        except PipelineFailed as error:
            return self._fail(FAILED, str(error))
        except Exception as error:
            return self._fail(FAILED, f"{type(error).__name__}: {reason_of(error)}")
        self._tell(events.STATE, state="stopped" if self._stop.is_set() else "finished")
        return FINISHED

    def _run(self) -> None:
        from penstock.pipelines.spark.session import session

        spec = self._applied.parsed()
        settings = {"spark.driver.memory": "1g", **resolve(spec.settings.spark)}
        spark = session(f"penstock {spec.name}", master=spec.settings.master, settings=settings)
        self._reset_if_asked(spec, spark)
        execution, prepared = Execution.prepare(spec, spark, self._place)
        self._should_stop()
        execution.start(prepared)
        self._tell(events.STATE, state="running")
        try:
            execution.wait(self._on_progress, self._should_stop)
        finally:
            execution.stop()

    def _reset_if_asked(self, spec: Any, spark: Any) -> None:
        """Once per request: the request's name is kept in the state that follows it."""
        if self._applied.reset is None:
            return
        state = self._place.state_of(spec, spark)
        if state.folder.read_text("reset") != self._applied.reset:
            ending.reset(self._place.client(spec), spec.name, state, backfill=self._applied.backfill)
            state.folder.write_text("reset", self._applied.reset)

    def _should_stop(self) -> bool:
        if self._fenced is not None:
            raise events.Fenced(self._fenced)
        return self._stop.is_set()

    def _keep_telling(self) -> None:
        """Alive, also while Spark starts or a batch takes long; and the first to learn that another one took over."""
        while self._fenced is None:
            time.sleep(events.ALIVE_SECONDS / 3)
            if time.monotonic() - self._last_event_at > events.ALIVE_SECONDS:
                try:
                    self._tell(events.ALIVE)
                except events.Fenced as error:
                    self._fenced = str(error)
                except Exception as error:  # the brokers are away: the queries will notice too, and decide
                    sys.stderr.write(f"no sign of life could be published: {error}\n")

    def _on_progress(self, query: str, progress: Mapping[str, Any]) -> None:
        now = time.monotonic()
        if now - self._told_at.get(query, -PROGRESS_SECONDS) >= PROGRESS_SECONDS or progress["numInputRows"]:
            self._told_at[query] = now
            self._tell(events.PROGRESS, **summary(query, progress))

    def _tell(self, kind: str, **content: Any) -> None:
        assert self._writer is not None
        content = {
            "generation": self._applied.generation,
            "runner": f"{socket.gethostname()}:{os.getppid()}",
            **content,
        }
        content = json.loads(redacted(json.dumps(content)))
        sys.stdout.write(json.dumps({"pipeline": self._applied.name, "kind": kind, **content}) + "\n")
        sys.stdout.flush()
        self._last_event_at = time.monotonic()
        with self._lock:
            self._writer.write(kind, **content)

    def _fail(self, code: int, reason: str) -> int:
        try:
            if self._writer is not None:
                self._tell(events.STATE, state="refused" if code == REFUSED else "failed", error=reason)
        except Exception as error:  # the brokers may be what is away; the reason still goes to the log
            sys.stderr.write(f"the failure could not be published: {error}\n")
        return self._end(code, reason)

    def _end(self, code: int, reason: str) -> int:
        sys.stderr.write(redacted(f"{self._applied.name}: {reason}\n"))
        return code

    def stop(self) -> None:
        self._stop.set()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--state-dir", required=True)
    parser.add_argument("--stop-seconds", type=float, default=20.0)
    parser.add_argument("--env-prefix", default="")
    parser.add_argument("--secrets-dir")
    arguments = parser.parse_args()
    allow(Allowed(arguments.env_prefix, arguments.secrets_dir))
    given = json.loads(sys.stdin.readline())
    applied = Applied(**given["applied"])
    driver = Driver(applied, Place(given["properties"], arguments.state_dir))

    def watch() -> None:
        while sys.stdin.readline():
            pass
        driver.stop()
        time.sleep(arguments.stop_seconds)
        os._exit(FAILED)  # a batch that does not end: it runs again next time

    threading.Thread(target=watch, daemon=True).start()
    code = driver.run()
    sys.stdout.flush()
    sys.stderr.flush()
    # Python would wait for Spark's threads; there is nothing left that they could do.
    os._exit(code)


if __name__ == "__main__":
    main()
