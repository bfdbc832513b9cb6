"""The console as a process of its own, and how tests reach it."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from confluent_kafka import Consumer, TopicPartition

import penstock
from penstock.testing.ports import free_port

TOKEN = "a-token-for-tests"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
QUIET = [
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-sync",
    "--no-first-run",
    "--no-pings",
]


@dataclass
class Console:
    address: str
    broker: penstock.Broker
    state_dir: Path
    process: subprocess.Popen[str]

    @property
    def api(self) -> str:
        return f"{self.address}/api/v1"

    @property
    def local(self) -> str:
        return f"{self.api}/clusters/local"

    def client(self, **options: Any) -> httpx.Client:
        """REST as a program uses it."""
        return httpx.Client(headers={"authorization": f"Bearer {TOKEN}"}, timeout=60, **options)


def in_a_loop(work: Coroutine[Any, Any, None]) -> None:
    """In a thread of its own: the browser's driver keeps an event loop in this one."""
    with ThreadPoolExecutor(1) as threads:
        threads.submit(asyncio.run, work).result()


def start_console(folder: Path, *arguments: str) -> tuple[subprocess.Popen[str], str]:
    """`penstock console` in a process; (process, address) once it says that it is ready."""
    port = free_port()
    command = [sys.executable, "-m", "penstock.cli.main", "console", "--port", str(port), "--state-dir", str(folder)]
    environment = {**os.environ, "PENSTOCK_CONSOLE_TOKEN": TOKEN, "PENSTOCK_CONFIG": str(folder / "profiles.toml")}
    environment.pop("PENSTOCK_BOOTSTRAP", None)
    process = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True, env=environment, cwd=folder)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("ready:"):
            return process, line.removeprefix("ready:").strip().partition("/?")[0].rstrip("/")
    raise AssertionError(f"the console ended with {process.wait()}")


def stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise


def commit_from_the_beginning(console: Console, group: str, topic: str) -> None:
    """A group without members that has read nothing yet."""
    consumer = Consumer({"bootstrap.servers": console.broker.bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    consumer.close()
