"""One applied pipeline inside a driver: prepared, run and watched in a thread of its own, beside others of its kind.

Its queries have a session of their own. Whatever happens to it, being fenced by another driver included, ends only
them. Events go to `__penstock_progress` and, for the runner's metrics, to the driver's standard output.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.pipelines import ending
from penstock.pipelines.control import events
from penstock.pipelines.control.store import Applied
from penstock.pipelines.execution import Execution, PipelineFailed, Place
from penstock.pipelines.problems import reason_of, story_of
from penstock.pipelines.progress import summary
from penstock.pipelines.secrets import redacted
from penstock.pipelines.sessions import is_remote
from penstock.pipelines.spec import PipelineSpec, SpecError

# How a pipeline ended, for the runner.
FINISHED, FAILED, REFUSED, FENCED = 0, 1, 3, 4
# What a driver tells its runner beside events.
ENDED, LINE, STORY = "ended", "line", "story"  # a story is for the driver's log only
PROGRESS_SECONDS: Final = 1.0


class Hosted:
    """`spark_for` gives the driver's session, `say` tells the runner, `lost` does not return if Spark has died."""

    def __init__(
        self,
        applied: Applied,
        place: Place,
        spark_for: Callable[[PipelineSpec], Any],
        say: Callable[[Mapping[str, Any]], None],
        lost: Callable[[], None],
    ) -> None:
        self.applied, self._place = applied, place
        self._spark_for, self._say, self._lost = spark_for, say, lost
        self._stop = threading.Event()
        self._writer: events.EventWriter | None = None
        self._fenced: str | None = None
        self._told_at: dict[str, float] = {}
        self._last_event_at = 0.0
        self._lock = threading.Lock()
        self._over = False

    def run(self) -> None:
        """To its end, which the runner is told."""
        code = self._run_to_end()
        self._over = True
        with self._lock:
            self._writer = None  # its connections go with it: the driver stays
        self._say({"kind": ENDED, "pipeline": self.applied.name, "generation": self.applied.generation, "code": code})

    def _run_to_end(self) -> int:
        try:
            self._writer = events.EventWriter(self._place.properties, self.applied.name)
            self._tell(events.STATE, state="starting")
            threading.Thread(target=self._keep_telling, daemon=True).start()
            self._run()
        except events.Fenced as error:
            return self._end(FENCED, str(error))
        except SpecError as error:
            return self._fail(REFUSED, str(error))
        except PipelineFailed as error:
            return self._fail(FAILED, str(error), story_of(error))
        except Exception as error:
            return self._fail(FAILED, f"{type(error).__name__}: {reason_of(error)}", story_of(error))
        self._tell(events.STATE, state="stopped" if self._stop.is_set() else "finished")
        return FINISHED

    def _run(self) -> None:
        from penstock.pipelines.spark import web_ui

        spec = self.applied.parsed()
        spark = self._spark_for(spec)
        if not is_remote(spark):
            # For jobs of the queries that this thread starts: a long batch of one pipeline leaves room for the others.
            spark.sparkContext.setLocalProperty("spark.scheduler.pool", spec.name)
        self._reset_if_asked(spec, spark)
        execution, prepared = Execution.prepare(spec, spark, self._place)
        self._should_stop()
        execution.start(prepared)
        self._tell(events.STATE, state="running", spark_ui=web_ui.place(spark))
        try:
            execution.wait(self._on_progress, self._should_stop)
        finally:
            execution.stop()

    def _reset_if_asked(self, spec: Any, spark: Any) -> None:
        """Once per request: the request's name is kept in the state that follows it."""
        if self.applied.reset is None:
            return
        state = self._place.state_of(spec, spark)
        if state.last_reset() != self.applied.reset:
            client = self._place.client(spec)
            if self.applied.discard_state:
                lost = ending.discard_state(client, spec.name, state, self.applied.begin)
                self._line(f"{spec.name} goes on where it was without {'; '.join(lost) or 'state: it had none'}")
            else:
                ending.reset(client, spec.name, state, backfill=self.applied.backfill)
            state.note_reset(self.applied.reset)

    def _should_stop(self) -> bool:
        if self._fenced is not None:
            raise events.Fenced(self._fenced)
        return self._stop.is_set()

    def _keep_telling(self) -> None:
        """Alive, also while Spark starts or a batch takes long; and the first to learn that another one took over."""
        while self._fenced is None and not self._over:
            time.sleep(events.ALIVE_SECONDS / 3)
            if time.monotonic() - self._last_event_at > events.ALIVE_SECONDS and not self._over:
                try:
                    self._tell(events.ALIVE)
                except events.Fenced as error:
                    self._fenced = str(error)
                except Exception as error:  # the brokers are away: the queries will notice too, and decide
                    self._line(f"no sign of life could be published: {error}")

    def _on_progress(self, query: str, progress: Mapping[str, Any]) -> None:
        now = time.monotonic()
        if now - self._told_at.get(query, -PROGRESS_SECONDS) >= PROGRESS_SECONDS or progress["numInputRows"]:
            self._told_at[query] = now
            self._tell(events.PROGRESS, **summary(query, progress))

    def _tell(self, kind: str, **content: Any) -> None:
        content = {
            "generation": self.applied.generation,
            "runner": f"{socket.gethostname()}:{os.getppid()}",
            **content,
        }
        content = json.loads(redacted(json.dumps(content)))
        self._say({"pipeline": self.applied.name, "kind": kind, **content})
        self._last_event_at = time.monotonic()
        with self._lock:
            if self._writer is not None:
                self._writer.write(kind, **content)

    def _fail(self, code: int, reason: str, story: str | None = None) -> int:
        self._lost()
        if story is not None:
            self._say({"kind": STORY, "pipeline": self.applied.name, "line": redacted(f"{reason}\n{story}")})
        try:
            if self._writer is not None:
                self._tell(events.STATE, state="refused" if code == REFUSED else "failed", error=reason)
        except Exception as error:  # the brokers may be what is away; the reason still goes to the log
            self._line(f"the failure could not be published: {error}")
        return self._end(code, reason)

    def _end(self, code: int, reason: str) -> int:
        self._line(f"{self.applied.name}: {reason}")
        return code

    def _line(self, text: str) -> None:
        self._say({"kind": LINE, "pipeline": self.applied.name, "line": redacted(text)})

    def stop(self) -> None:
        self._stop.set()
