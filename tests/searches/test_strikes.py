"""The killing in the clients' proof goes on by itself: loops and brokers die in time, and all of them come back."""

from __future__ import annotations

import socket
import sys
import threading
from pathlib import Path

from penstock.testing.broker_process import BrokerProcess
from penstock.testing.clients.strikes import Strikes
from penstock.testing.eos_chain import Process

STRIKES = 4


def test_loops_and_brokers_are_killed_in_turn_and_come_back_while_nobody_looks(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "broker").start()
    loop = Process([sys.executable, "-c", "print('begun', flush=True); input()"], tmp_path / "loop.log")
    strikes = Strikes([broker], {"loop": [loop]}, every_seconds=0.1, seed=1)
    try:
        strikes.start()
        enough = threading.Event()
        while sum(strikes.kills.values()) < STRIKES and strikes.error is None:
            enough.wait(0.05)
        strikes.end()
        assert strikes.error is None
        assert strikes.kills["broker 1"] >= 1
        assert strikes.kills["loop"] >= 3
        with socket.create_connection(("127.0.0.1", broker.port), timeout=10):
            pass  # it is there again
        strikes.release("loop")
        assert not loop.is_running
    finally:
        strikes.end()
        loop.kill()
        broker.stop()
