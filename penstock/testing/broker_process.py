"""A Penstock broker in a process of its own, to be killed with -9 and started again on the same port and data."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

from penstock.testing.ports import free_port


class BrokerProcess:
    """`with BrokerProcess(folder) as broker: … broker.kill(); broker.start()`; settings are Kafka's names."""

    def __init__(self, folder: Path, settings: dict[str, str] | None = None, port: int | None = None) -> None:
        self.folder = folder
        self.environment: dict[str, str] = {}  # of the next start, beside our own
        self.port = free_port() if port is None else port
        self.log_file = folder / "broker.log"
        self._settings = {
            "log.dirs": str(folder / "data"),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "group.initial.rebalance.delay.ms": "0",
            **(settings or {}),
        }
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> BrokerProcess:
        self.folder.mkdir(parents=True, exist_ok=True)
        arguments = [part for name, value in self._settings.items() for part in ("--set", f"{name}={value}")]
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "penstock.broker", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **self.environment},
            )
        deadline = time.monotonic() + 60
        while not self._listens():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the broker does not start: {self._last_words()}")
            time.sleep(0.02)
        return self

    def _listens(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def _last_words(self) -> str:
        return self.log_file.read_text(errors="replace")[-2000:]

    def kill(self) -> None:
        """As the power cut does it."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def __enter__(self) -> BrokerProcess:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
