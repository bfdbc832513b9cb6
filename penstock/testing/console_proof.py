"""Proof of the console's size and speed: `make prove-console`, or `python -m penstock.testing.console_proof [PART…]`.

pages: a cluster of many topics and groups; every page timed at the server, loaded by a browser, and gone to inside the
open console; then many open pages, and what they cost the broker beside none.
search: millions of records of 100 bytes, found by key, value, header and expression, compared with what was written.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from penstock.client.sync import SyncClient
from penstock.testing.broker_process import BrokerProcess
from penstock.testing.console_visitor import Visitor
from penstock.testing.ports import free_port

TOKEN = "a-token-for-the-proof"
BEARER = {"authorization": f"Bearer {TOKEN}"}
BATCH_TOPICS = 50
PAGES = {
    "": ".pk-list li",
    "/topics": "tbody tr",
    "/topics/many-00007": ".pk-messages",
    "/groups": "tbody tr",
    "/group?name=group-007": "tbody tr",
    "/brokers": "tbody tr",
    "/doctor": ".pk-list li",
    "/security": ".pk-empty b",
}
"""Path → what stands in the page once its data has come."""
GO = """([address, first]) => new Promise((resolve) => {
  const began = performance.now(), main = document.getElementById("pk-main");
  const before = main.querySelector("[data-visit]");
  let heading = 0;
  const look = () => {
    const now = main.querySelector("[data-visit]");
    if (!now || now === before || !now.querySelector("h1")) return;
    heading ||= performance.now() - began;
    if (!now.querySelector(first) || now.querySelector(".pk-waiting")) return;
    watcher.disconnect();
    resolve([heading, performance.now() - began]);
  };
  const watcher = new MutationObserver(look);
  watcher.observe(main, { childList: true, subtree: true });
  const link = document.createElement("a");
  link.href = address;
  document.body.append(link);
  link.click();
  link.remove();
})"""
OPEN_PATHS = ("", "/topics", "/groups", "/brokers")
CHUNK = 100_000
VALUE = b'{"id":00000000,"name":"xxxxxxxxxxxxxxxxxxxxxxxxxx","to":"de","n":000000}'
TICKS = os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def world(folder: Path) -> Iterator[tuple[BrokerProcess, str, int]]:
    """(broker, address of a console for it, process id of that console)."""
    with BrokerProcess(folder / "broker", {"auto.create.topics.enable": "false"}) as broker:
        port = free_port()
        command = [sys.executable, "-m", "penstock.cli.main", "console", "-b", broker.bootstrap, "--port", str(port)]
        environment = {**os.environ, "PENSTOCK_CONSOLE_TOKEN": TOKEN, "PENSTOCK_CONFIG": str(folder / "none.toml")}
        console = subprocess.Popen(
            [*command, "--state-dir", str(folder / "console")], stdout=subprocess.PIPE, text=True, env=environment
        )
        try:
            assert console.stdout is not None
            if not any(line.startswith("ready:") for line in console.stdout):
                raise SystemExit("the console did not start")
            yield broker, f"http://127.0.0.1:{port}", console.pid
        finally:
            console.terminate()
            console.wait(30)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def rest(address: str) -> httpx.Client:
    return httpx.Client(base_url=f"{address}/api/v1/clusters/local", headers=BEARER, timeout=120)


# --- many topics and groups


def fill(bootstrap: str, topics: int, partitions: int, groups: int) -> None:
    from confluent_kafka import Consumer, TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    for first in range(0, topics, BATCH_TOPICS):
        names = [f"many-{number:05d}" for number in range(first, min(first + BATCH_TOPICS, topics))]
        for made in admin.create_topics(
            [NewTopic(name, partitions, 1) for name in names], request_timeout=120
        ).values():
            made.result()
    for number in range(groups):
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"group-{number:03d}"})
        offsets = [TopicPartition(f"many-{number % topics:05d}", index, 0) for index in range(partitions)]
        consumer.commit(offsets=offsets, asynchronous=False)
        consumer.close()


def wait_until_seen(address: str, topics: int, groups: int) -> None:
    with rest(address) as client:
        for path, count in (("/topics", topics), ("/groups", groups)):
            while client.get(path, params={"size": 1}).json()["total"] < count:
                time.sleep(0.2)


@dataclass(frozen=True)
class PageTimes:
    """Milliseconds, medians."""

    path: str
    server: float
    load: float
    """A whole load in the browser until the heading stands."""
    heading: float
    """From a click inside the open console to the heading, and to the first data."""
    data: float


def time_pages(address: str, rounds: int) -> Iterator[PageTimes]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright, httpx.Client(timeout=60) as plain:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("chromium-browser"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(60_000)
        page.goto(f"{address}/?token={TOKEN}")
        page.locator("h1").wait_for()
        plain.cookies.update({cookie["name"]: cookie["value"] for cookie in page.context.cookies()})
        for path, first in PAGES.items():
            times: list[tuple[float, float, float, float]] = []
            for _ in range(rounds + 1):  # the first one warms up
                began = time.perf_counter()
                answer = plain.get(f"{address}/c/local{path}", headers={"accept": "text/html"})
                server = (time.perf_counter() - began) * 1000
                assert answer.status_code == 200, (path, answer.status_code)
                began = time.perf_counter()
                page.goto(f"{address}/c/local{path}", wait_until="commit")
                page.locator("h1").wait_for()
                load = (time.perf_counter() - began) * 1000
                page.evaluate(GO, ["/c/local/sql", "button"])  # somewhere else, and what it needs is loaded
                heading, data = page.evaluate(GO, [f"/c/local{path}", first])
                times.append((server, load, heading, data))
            middle = [statistics.median(column) for column in zip(*times[1:], strict=True)]
            yield PageTimes(path or "/", *middle)
        browser.close()


def prove_pages(folder: Path, given: argparse.Namespace) -> None:
    with world(folder) as (broker, address, console):
        began = time.monotonic()
        fill(broker.bootstrap, given.topics, given.partitions, given.groups)
        say(f"{given.topics} topics of {given.partitions} partitions and {given.groups} groups made", began)
        wait_until_seen(address, given.topics, given.groups)
        asyncio.run(prove_open(broker.pid, console, address, given))
        for one in time_pages(address, given.rounds):
            figures = (one.server, one.load, one.heading, one.data)
            print(f"| `{one.path}` | " + " | ".join(f"{figure:.0f} ms" for figure in figures) + " |", flush=True)
        print(f"load average {os.getloadavg()[0]:.1f}", flush=True)


# --- open pages


async def prove_open(broker: int, console: int, address: str, given: argparse.Namespace) -> None:
    """What so many open pages cost, of a core, beside none. They are open as in a browser, but nobody draws them."""

    async def shares() -> list[float]:
        before, began = [cpu_seconds(pid) for pid in (broker, console)], time.monotonic()
        await asyncio.sleep(given.seconds)
        took = time.monotonic() - began
        after = [cpu_seconds(pid) for pid in (broker, console)]
        return [(now - then) / took * 100 for then, now in zip(before, after, strict=True)]

    none = await shares()
    async with contextlib.AsyncExitStack() as stack:
        for number in range(given.open):
            path = OPEN_PATHS[number % len(OPEN_PATHS)]
            visitor = await stack.enter_async_context(Visitor(address, BEARER, f"/c/local{path}"))
            await visitor.until(lambda visitor=visitor: visitor.heading)
        some = await shares()
    for who, before, after in zip(("broker", "console"), none, some, strict=True):
        print(f"{who}: {before:.1f} % of a core with no open page, {after:.1f} % with {given.open}", flush=True)


# --- searching


def write_records(bootstrap: str, topic: str, count: int, partitions: int) -> None:
    """Records of 100 bytes: a key of 12, a value of 72, a header of 16; every one tells its number."""
    import numpy as np
    import pyarrow as pa

    from penstock.protocol import columnar

    dice = np.random.default_rng(1)

    def texts(template: bytes, numbers: Any, places: dict[int, int]) -> Any:
        """The template for each number, with the number's last digits at each place {position: digits}."""
        made = np.tile(np.frombuffer(template, np.uint8), (len(numbers), 1))
        for position, digits in places.items():
            for digit in range(digits):
                made[:, position + digit] = numbers // 10 ** (digits - 1 - digit) % 10 + ord("0")
        return made

    def column(made: Any, kind: Any) -> Any:
        ends = np.arange(0, made.size + 1, made.shape[1], dtype=np.int32)
        return pa.Array.from_buffers(kind, len(made), [None, pa.py_buffer(ends), pa.py_buffer(made.tobytes())])

    with SyncClient(bootstrap) as client:
        for first in range(0, count, CHUNK):
            numbers = np.arange(first, min(first + CHUNK, count), dtype=np.int64)
            keys = column(texts(b"key-00000000", numbers, {4: 8}), pa.binary())
            made = texts(VALUE, numbers, {VALUE.index(b":0") + 1: 8, len(VALUE) - 7: 6})
            made[:, VALUE.index(b"x") : VALUE.rindex(b"x") + 1] = dice.integers(
                97, 123, (len(numbers), VALUE.count(b"x"))
            )
            names = column(np.tile(np.frombuffer(b"source", np.uint8), (len(numbers), 1)), pa.string())
            sources = column(texts(b"web-000000", numbers % 100_000, {4: 6}), pa.binary())
            pairs = pa.StructArray.from_arrays([names, sources], fields=list(columnar.HEADER_TYPE.value_type))
            headers = pa.ListArray.from_arrays(pa.array(np.arange(len(numbers) + 1, dtype=np.int32)), pairs)
            batches = columnar.encode(
                column(made, pa.binary()),
                partitions=numbers % partitions,
                keys=keys,
                headers=headers,
                max_batch_bytes=200_000,
            )
            for batch in batches:
                client.produce(topic, batch.partition, bytes(batch.data))


def questions(count: int) -> list[tuple[str, dict[str, str], int]]:
    """(what, question, how many there are): all but the expressions are the kernel's."""
    middle = count // 2
    return [
        ("key is", {"key": f"key-{middle:08d}", "exact": "true"}, 1),
        ("key holds", {"key": f"{middle:08d}"}, 1),
        ("value holds", {"value": f'"id":{middle:08d},'}, 1),
        ("value holds, not there", {"value": "nowhere to be found"}, 0),
        ("header is", {"header": f"source=web-{middle % 100_000:06d}", "exact": "true"}, max(1, count // 100_000)),
        ("expression, with a hint", {"expression": f'key == "key-{middle:08d}"'}, 1),
        ("expression on JSON, with a hint", {"expression": 'value.to == "xx"'}, 0),
    ]


def prove_search(folder: Path, given: argparse.Namespace) -> None:
    with world(folder) as (broker, address, _):
        began = time.monotonic()
        with rest(address) as client:
            client.post("/topics", json={"name": "searched", "partitions": given.partitions}).raise_for_status()
            write_records(broker.bootstrap, "searched", given.records, given.partitions)
            say(f"{given.records} records written", began)
            where = "/topics/searched/messages"
            client.get(where, params={"value": "warm up", "start": str(given.records // given.partitions - 1)})
            asked = questions(given.records)
            if given.json:
                asked.append(("expression on JSON, every record", {"expression": "value.n == 1000001"}, 0))
            for what, question, expected in asked:
                before, began = cpu_seconds(broker.pid), time.monotonic()
                found = client.get(where, params={**question, "start": "oldest", "limit": 1000}).json()
                took = time.monotonic() - began
                assert len(found) == expected, (what, len(found), expected, found[:2])
                cost = cpu_seconds(broker.pid) - before
                rate = given.records / took / 1e6
                print(f"| {what} | {expected} | {took:.1f} s | {rate:.2f} M/s | {cost:.1f} s |", flush=True)


def say(what: str, began: float) -> None:
    print(f"{what} in {time.monotonic() - began:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["pages", "search"])
    parser.add_argument("--topics", type=int, default=2_000)
    parser.add_argument("--partitions", type=int, default=10)
    parser.add_argument("--groups", type=int, default=200)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--open", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="also an expression that every record has to be read for")
    given = parser.parse_args()
    parts: dict[str, Any] = {"pages": prove_pages, "search": prove_search}
    for part in given.parts:
        folder = Path(tempfile.mkdtemp(prefix="penstock-proof-"))
        try:
            parts[part](folder, given)
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
