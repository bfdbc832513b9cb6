"""Who dies when: a thread of its own, so that strikes come in time whatever else is going on (reading outputs, say)."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter

from penstock.testing.broker_process import BrokerProcess
from penstock.testing.eos_chain import Process

BROKER_EVERY = 3  # strikes
LOOK_SECONDS = 0.1


class Strikes(threading.Thread):
    """Loops and, in turn, brokers are killed with -9 and come back; loops that end by themselves do so, too."""

    def __init__(
        self,
        brokers: list[BrokerProcess],
        loops: dict[str, list[Process]],
        every_seconds: float,
        seed: int,
        most: int | None = None,
    ) -> None:
        """`most` kills: then everybody may come to the end in peace."""
        super().__init__(name="strikes", daemon=True)
        self.kills: Counter[str] = Counter()
        self.error: Exception | None = None
        self._brokers = brokers
        self._loops = dict(loops)
        self._every = every_seconds
        self._most = most
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._ending = threading.Event()

    def run(self) -> None:
        try:
            self._strike_on()
        except Exception as error:
            self.error = error

    def _strike_on(self) -> None:
        next_strike = time.monotonic() + self._every / 2
        down: tuple[BrokerProcess, float] | None = None
        while not self._ending.wait(LOOK_SECONDS):
            now = time.monotonic()
            if down is not None and now > down[1]:
                down[0].start()
                down = None
            if now > next_strike and down is None and not self._is_enough():
                down = self._strike()
                next_strike = time.monotonic() + self._every * self._random.uniform(0.4, 1.6)
            with self._lock:
                for process in [one for processes in self._loops.values() for one in processes]:
                    process.keep_running()
        if down is not None:
            down[0].start()

    def _is_enough(self) -> bool:
        return self._most is not None and sum(self.kills.values()) >= self._most

    def _strike(self) -> tuple[BrokerProcess, float] | None:
        """The broker that is down now, and until when."""
        if sum(self.kills.values()) % BROKER_EVERY == BROKER_EVERY - 1:
            number = self._random.randrange(len(self._brokers))
            self._brokers[number].kill()
            self.kills[f"broker {number + 1}"] += 1
            return self._brokers[number], time.monotonic() + self._random.uniform(0.0, 3.0)
        with self._lock:
            if self._loops:
                kind = self._random.choice(sorted(self._loops))
                self._random.choice(self._loops[kind]).kill()
                self.kills[kind] += 1
        return None

    def release(self, kind: str) -> None:
        """These have come to their end: they are killed once more, for good."""
        with self._lock:
            for process in self._loops.pop(kind):
                process.kill()

    def end(self) -> None:
        """All brokers run afterwards."""
        self._ending.set()
        if self.ident is not None:
            self.join()
