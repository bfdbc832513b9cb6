"""Spark's own pages through the console: of the driver that said so, after the login, and nothing of the browser's."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from console_world import Console

from penstock.client.sync import SyncClient
from penstock.console.access.audit import Audit
from penstock.console.access.logins import Logins
from penstock.console.access.users import User
from penstock.console.cluster import Cluster, ConsoleSession
from penstock.console.data import spark_pages
from penstock.console.data.viewer import AccessDenied, Viewer
from penstock.console.policy import Mask, Policy
from penstock.console.spark_proxy import own_location
from penstock.pipelines.control import events
from penstock.pipelines.control.store import PipelineStore
from penstock.pipelines.spec import shape_of

APP = "local-1794962444928"
POLICY = "default-src 'self'; script-src 'self' 'nonce-125d602f-d63d-43d3-9dc0-c4d0aaa7c22a'"


class Spark:
    """Answers where a driver's pages would be, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        spark = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                spark.asked.append((self.command, self.path, {k.lower(): v for k, v in self.headers.items()}))
                if self.path == "/api/v1/applications":
                    self._answer(200, json.dumps([{"id": APP}]).encode())
                elif self.path == "/":
                    self._answer(302, b"", location=f"http://127.0.0.1:{spark.port}/jobs/")
                else:
                    self._answer(200, b"<html>jobs</html>")

            def do_POST(self) -> None:
                self.do_GET()

            def _answer(self, status: int, body: bytes, location: str = "") -> None:
                self.send_response(status)
                for name, value in {"content-type": "text/html", "content-length": str(len(body))}.items():
                    self.send_header(name, value)
                self.send_header("content-security-policy", POLICY)
                self.send_header("set-cookie", "penstock_console=evil; Path=/")
                self.send_header("x-frame-options", "ALLOWALL")
                if location:
                    self.send_header("location", location)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(scope="module")
def spark() -> Iterator[Spark]:
    made = Spark()
    yield made
    made.close()


def _driver_says(console: Console, name: str, said: Any) -> None:
    with SyncClient(console.broker.bootstrap) as client:
        spec = {
            "name": name,
            "sources": {"s": {"topic": f"{name}.in", "format": {"type": "json", "schema": "n INT"}}},
            "sinks": {"out": {"from": "s", "topic": f"{name}.out"}},
        }
        PipelineStore(client).apply(shape_of(spec))
        events.ensure(client)
    writer = events.PlainWriter({"bootstrap.servers": console.broker.bootstrap})
    writer.write(name, events.STATE, state="running", spark_ui=said)
    writer.close()


def _eventually(client: httpx.Client, address: str, status: int) -> httpx.Response:
    """The console looks at its cluster every few seconds."""
    while True:
        answer = client.get(address)
        if answer.status_code == status:
            return answer
        assert answer.status_code == 404, answer.text
        time.sleep(0.3)


def test_pages_come_without_the_browsers_secrets_and_bring_none(console: Console, spark: Spark, name: str) -> None:
    _driver_says(console, name, {"host": socket.gethostname(), "port": spark.port, "app": APP})
    here = f"{console.address}/spark/local/{name}"
    with console.client() as friend:
        friend.cookies.set("penstock_console", "a cookie of somebody")
        answer = _eventually(friend, f"{here}/jobs/?id=1", 200)
        assert answer.text == "<html>jobs</html>" and "set-cookie" not in answer.headers
        assert answer.headers["x-frame-options"] == "DENY" and answer.headers["x-content-type-options"] == "nosniff"
        policies = answer.headers.get_list("content-security-policy")
        assert len(policies) == 1 and "'nonce-125d602f-d63d-43d3-9dc0-c4d0aaa7c22a'" in policies[0]
        assert "unsafe-eval" not in policies[0] and "frame-ancestors 'none'" in policies[0]
        command, path, headers = spark.asked[-1]
        assert (command, path) == ("GET", "/jobs/?id=1")
        assert headers["x-forwarded-context"] == f"/spark/local/{name}"
        assert not {"cookie", "authorization", "origin"} & set(headers)
        assert friend.get(f"{here}/").headers["location"] == f"/spark/local/{name}/jobs/"
        assert friend.get(here).headers["location"] == f"/spark/local/{name}/"

        before = len(spark.asked)
        assert friend.post(f"{here}/jobs/job/kill/?id=1").status_code in (404, 405)
        assert friend.get(f"{here}/%2e%2e/%2e%2e/api/v1/me").status_code == 404
        with httpx.Client(timeout=60) as nobody:
            assert nobody.get(f"{here}/jobs/").headers["location"].startswith("/login")
        assert len(spark.asked) == before


@pytest.mark.parametrize(
    "change",
    [{"host": "another.machine"}, {"app": "local-of-another"}, {"port": 80}, {"port": "22"}, {"port": None}],
)
def test_what_is_not_that_driver_is_not_shown(
    console: Console, spark: Spark, name: str, change: dict[str, Any]
) -> None:
    _driver_says(console, name, {"host": socket.gethostname(), "port": spark.port, "app": APP, **change})
    with console.client() as friend:
        while name not in friend.get(f"{console.local}/search", params={"text": name}).text:
            time.sleep(0.3)
        assert friend.get(f"{console.address}/spark/local/{name}/jobs/").status_code == 404


def test_only_who_sees_everything_sees_them(console: Console, tmp_path: Path) -> None:
    cluster = Cluster("local", ConsoleSession({"bootstrap.servers": console.broker.bootstrap}), tmp_path)
    masking = Policy(masks=(Mask(("x",), ("value",), ("admin",)),))
    for role, policy in (("viewer", Policy()), ("editor", masking)):
        viewer = Viewer(Logins("x").open(User(role, role)), cluster, policy, Audit(tmp_path / "audit"))
        with pytest.raises(AccessDenied):
            spark_pages.pages(viewer, "any")


@pytest.mark.parametrize("given", ["http://evil.example/jobs/", "//evil.example/jobs/", "/jobs/", "/\\evil.example/"])
def test_a_redirect_stays_among_the_pages(given: str) -> None:
    assert own_location(given, "/spark/local/p").startswith("/spark/local/p/")
    assert own_location("/spark/local/p/jobs/?a=1", "/spark/local/p") == "/spark/local/p/jobs/?a=1"
