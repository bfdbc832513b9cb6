"""Pictures of the console for the docs: a cluster of three with something going on, and the demo's pipeline; every
page in both themes.

python scripts/make_screenshots.py                    writes docs/screenshots/*.png
python scripts/make_screenshots.py --serve            only starts the world and says where, until Ctrl-C
python scripts/make_screenshots.py --address URL --out FOLDER --only groups,group --phone
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.cluster import local
from penstock.testing.ports import free_ports

TOKEN = "a-token-for-pictures"
TOPICS = {"orders": 6, "payments": 3, "clicks": 12, "customers": 2, "shipments": 4}
PER_SECOND = {"orders": 40, "payments": 25, "clicks": 160, "shipments": 8}
PAGES = {
    "overview": "",
    "topics": "/topics",
    "topic": "/topics/orders",
    "groups": "/groups",
    "group": "/group?name=shipping",
    "group-members": "/group?name=billing&tab=members",
    "group-rebalances": "/group?name=billing&tab=rebalances",
    "brokers": "/brokers",
    "broker": "/brokers/1",
    "transactions": "/transactions",
    "transaction": "/transaction?id=checkout-7",
    "security": "/security",
    "doctor": "/doctor",
}
DEMO_PAGES = {
    "pipelines": "/pipelines",
    "pipeline": "/pipelines/demo",
    "pipeline-letters": "/pipelines/demo?tab=letters",
    "pipeline-spec": "/pipelines/demo?tab=spec",
    "sql": "/sql",
}
WARM_UP_SECONDS = 60
MOST_BYTES = 200_000


class Shop:
    """Orders, payments and clicks at a steady rate, groups that read them more or less quickly, an open transaction."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []

    def open(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        wanted = [NewTopic(name, count, 3) for name, count in TOPICS.items()]
        for made in admin.create_topics(wanted).values():
            made.result()
        self._start(self._sell)
        for number in (1, 2, 3):
            self._start(self._read, "billing", f"billing-{number}", ["orders", "payments"], 0.0)
        self._start(self._read, "billing", "billing-spare", ["orders", "payments"], 0.0, 300)
        self._start(self._read, "shipping", "shipping-1", ["orders"], 0.06)
        self._start(self._read, "dashboard", "dashboard-1", ["clicks"], 0.0)
        self._start(self._read, "nightly-export", "export-1", ["orders"], 0.0, 200)
        self._start(self._hold)

    def close(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(30)

    def _start(self, work: Any, *arguments: Any) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _sell(self) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 50})
        dice, number = random.Random(7), 0
        while not self._over.wait(0.25):
            for topic, rate in PER_SECOND.items():
                for _ in range(int(rate / 4 * dice.uniform(0.6, 1.4))):
                    number += 1
                    producer.produce(topic, json.dumps(_row(topic, number, dice)), f"{topic[0]}{number:07d}")
            producer.poll(0)
        producer.flush(10)

    def _read(self, group: str, client: str, topics: list[str], pause: float, most: int = 0) -> None:
        where = {"bootstrap.servers": self._bootstrap, "group.id": group, "client.id": client}
        consumer = Consumer({**where, "auto.offset.reset": "earliest", "auto.commit.interval.ms": 1000})
        consumer.subscribe(topics)
        seen = 0
        while not self._over.is_set() and not (most and seen >= most):
            message = consumer.poll(0.5)
            if message is not None:
                seen += 1
                if pause:
                    self._over.wait(pause)
        consumer.close()

    def _hold(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": "checkout-7",
                "transaction.timeout.ms": 900_000,
            }
        )
        producer.init_transactions(60)
        producer.begin_transaction()
        for number in range(12):
            producer.produce("payments", json.dumps({"payment": number, "held": True}), f"p{number}")
        producer.flush(30)
        self._over.wait()
        with contextlib.suppress(KafkaException):  # whoever looked at the page may have ended it
            producer.abort_transaction(30)


def _row(topic: str, number: int, dice: random.Random) -> dict[str, Any]:
    country = dice.choice(["at", "de", "fr", "it", "pl"])
    if topic == "clicks":
        return {"page": dice.choice(["/", "/cart", "/shoes", "/help"]), "visitor": dice.randrange(9000)}
    return {
        "id": number,
        "customer": f"c{dice.randrange(500)}",
        "amount": round(dice.uniform(3, 240), 2),
        "to": country,
    }


def _hire(api: str) -> None:
    """People and programs with rights and limits, so that there is security to be seen."""
    with httpx.Client(headers={"authorization": f"Bearer {TOKEN}"}, timeout=60) as client:
        for who, what, which in (
            ("billing", "read", "topic:orders"),
            ("billing", "read", "group:billing"),
            ("shop", "write", "topic:*"),
            ("anna", "describe", "cluster"),
        ):
            rule = {"principal": who, "operation": what, "resource": which}
            client.post(f"{api}/acls", json=rule).raise_for_status()
        no = {"principal": "intern", "permission": "deny", "operation": "delete", "resource": "topic:pay*"}
        client.post(f"{api}/acls", json=no).raise_for_status()
        client.post(f"{api}/users", json={"name": "anna", "password": "for pictures"}).raise_for_status()
        limit = {"whose": "client:dashboard-1", "quota": "fetch", "limit": 5_000_000}
        client.post(f"{api}/quotas", json=limit).raise_for_status()


@contextlib.contextmanager
def world() -> Iterator[str]:
    """The address, with a token, of a console on a cluster with something going on."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-pictures-"))
    first = free_ports(5)
    settings = {
        "group.initial.rebalance.delay.ms": "500",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    cluster = local.start(folder / "cluster", 3, first, first + 3, settings)
    console: subprocess.Popen[str] | None = None
    shop = Shop(cluster.bootstrap)
    try:
        shop.open()
        command = [sys.executable, "-m", "penstock.cli.main", "console", "-b", cluster.bootstrap]
        command += ["--port", str(first + 4), "--state-dir", str(folder / "console")]
        environment = {**os.environ, "PENSTOCK_CONSOLE_TOKEN": TOKEN, "PENSTOCK_CONFIG": str(folder / "none.toml")}
        console = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert console.stdout is not None
        if not any(line.startswith("ready:") for line in console.stdout):
            raise SystemExit("the console did not start")
        _hire(f"http://127.0.0.1:{first + 4}/api/v1/clusters/local")
        yield f"http://127.0.0.1:{first + 4}/?token={TOKEN}"
    finally:
        if console is not None:
            console.terminate()
            console.wait(30)
        shop.close()
        local.stop(folder / "cluster")
        shutil.rmtree(folder)


@contextlib.contextmanager
def demo() -> Iterator[str]:
    """The same of the console that `penstock up --demo` brings, with its pipeline at work."""
    with tempfile.TemporaryDirectory(prefix="penstock-pictures-") as name:
        first = free_ports(3)
        command = [sys.executable, "-m", "penstock.cli.main", "up", "--demo", "--data-dir", f"{name}/data"]
        command += ["--port", str(first), "--metrics-port", str(first + 1), "--console-port", str(first + 2)]
        environment = {**os.environ, "PENSTOCK_CONFIG": f"{name}/none.toml"}
        with Path(name, "said").open("w+") as said:
            up = subprocess.Popen(command, stdout=said, stderr=said, text=True, env=environment)
            try:
                while "demo: revenue" not in Path(said.name).read_text():  # rows came out at the other end
                    if up.poll() is not None:
                        raise SystemExit(f"the demo did not start:\n{Path(said.name).read_text()}")
                    time.sleep(0.5)
                found = re.search(r"http://\S+\?token=\S+", Path(said.name).read_text())
                assert found is not None
                yield found.group()
            finally:
                up.send_signal(signal.SIGINT)
                up.wait(90)


def _run_query(page: Any) -> None:
    """The workbench is worth a picture with an answer in it."""
    page.get_by_role("button", name="Run").click()
    page.locator(".pk-note.pk-ok").wait_for()


def take(address: str, out: Path, names: list[str], *, phone: bool) -> None:
    from playwright.sync_api import sync_playwright

    out.mkdir(parents=True, exist_ok=True)
    shapes = [("light", 1280), ("dark", 1280)] + ([("phone", 390)] if phone else [])
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for shape, width in shapes:
            scheme = "dark" if shape == "dark" else "light"
            view = {"width": width, "height": 860}
            context = browser.new_context(viewport=view, color_scheme=scheme, timezone_id="Europe/Vienna")
            page = context.new_page()
            page.set_default_timeout(90_000)
            page.goto(address)
            base = address.partition("/?")[0]
            for name in names:
                page.goto(f"{base}/c/local{(PAGES | DEMO_PAGES)[name]}")
                page.locator("h1").wait_for()
                page.locator(".pk-waiting").wait_for(state="detached")
                if name == "sql":
                    _run_query(page)
                if name == "doctor":
                    page.get_by_role("heading", name="In order").wait_for()
                page.wait_for_timeout(2_500)  # charts draw themselves
                path = out / f"{name}-{shape}.png"
                page.screenshot(path=path)
                size = path.stat().st_size
                print(f"{path} {size // 1000} KB{' TOO LARGE' if size > MOST_BYTES else ''}")
            context.close()
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/screenshots"))
    parser.add_argument("--only", default=",".join([*PAGES, *DEMO_PAGES]))
    parser.add_argument("--address", help="of a console that runs already, with its token")
    parser.add_argument("--phone", action="store_true", help="also at 390 pixels")
    parser.add_argument("--serve", action="store_true", help="take no pictures; run until Ctrl-C")
    given = parser.parse_args()
    names = given.only.split(",")
    if given.address:
        take(given.address, given.out, names, phone=given.phone)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    for pages, place in ((PAGES, world), (DEMO_PAGES, demo)):
        wanted = [name for name in names if name in pages]
        if not wanted:
            continue
        with place() as address:
            if given.serve:
                print(address, flush=True)
                signal.pause()
            time.sleep(WARM_UP_SECONDS)  # charts want a past
            take(address, given.out, wanted, phone=given.phone)


if __name__ == "__main__":
    main()
