"""Who gets in: tokens, cookies, users; what comes from elsewhere is refused before anything looks at it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from console_world import TOKEN, Console, start_console, stop

from penstock.console.access.guard import Guard, Rules
from penstock.console.access.logins import FREE_TRIES, Logins
from penstock.console.access.users import User, UserFile, add_user
from penstock.console.settings import ConsoleSettings
from penstock.operate.errors import UserError


def test_without_a_login_there_is_only_the_login_page(console: Console) -> None:
    with httpx.Client(timeout=60) as nobody:
        assert nobody.get(f"{console.api}/clusters").status_code == 401
        start = nobody.get(console.address + "/")
        assert start.status_code == 303 and start.headers["location"] == "/login"
        assert nobody.get(f"{console.address}/c/local/topics").headers["location"] == "/login?next=/c/local/topics"
        assert nobody.get(f"{console.address}/_nicegui/x/static/nicegui.js").status_code == 401
        assert "Token" in nobody.get(f"{console.address}/login").text


def test_the_printed_address_becomes_a_cookie_and_the_token_leaves_the_address(console: Console) -> None:
    with httpx.Client(timeout=60) as browser:
        first = browser.get(f"{console.address}/c/local/topics?token={TOKEN}&x=1")
        assert first.status_code == 303 and first.headers["location"] == "/c/local/topics?x=1"
        cookie = first.headers["set-cookie"]
        assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and "Max-Age=" in cookie
        assert browser.get(f"{console.api}/me").json() == {"name": "local", "role": "admin"}
        made = browser.post(f"{console.local}/topics", json={"name": "x"})
        assert made.status_code == 403 and "x-penstock-console" in made.json()["error"]
        plan = browser.post(f"{console.local}/partitions/plan", json={}, headers={"x-penstock-console": "1"})
        assert plan.status_code == 200
        out = browser.post(f"{console.address}/logout", headers={"origin": console.address})
        assert out.status_code == 303
        assert browser.get(f"{console.api}/me", headers={"cookie": cookie.partition(";")[0]}).status_code == 401


@pytest.mark.parametrize("goes_away", [True, False])
def test_a_browser_that_goes_away_is_no_error_of_the_console(goes_away: bool) -> None:
    """Starlette raises when nobody waits for its answer; a hundred lines of that in the log look like a crash."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        raise RuntimeError("No response returned.")

    async def receive() -> dict[str, str]:
        return {"type": "http.disconnect" if goes_away else "http.request"}

    async def send(message: Any) -> None:
        raise AssertionError(message)

    scope = {"type": "http", "method": "GET", "path": "/health", "query_string": b"", "headers": [(b"host", b"here")]}
    asked = Guard(app, Logins("x"), Rules(frozenset({"here"})))(scope, receive, send)
    with contextlib.nullcontext() if goes_away else pytest.raises(RuntimeError):
        asyncio.run(asked)


def test_a_rebound_host_name_and_a_foreign_origin_are_refused(console: Console) -> None:
    with console.client() as friend:
        mixed = f"{urlsplit(console.address).netloc}@evil.example"
        for host in ("evil.example", mixed, "127.0.0.1:", "127.0.0.1:80:80", "[::1", ""):
            assert friend.get(f"{console.api}/me", headers={"host": host}).status_code == 421
        for host in ("localhost", "127.0.0.1:80", "[::1]:80"):
            assert friend.get(f"{console.api}/me", headers={"host": host}).status_code == 200
        assert friend.get(f"{console.api}/me", headers={"origin": "http://evil.example"}).status_code == 403
        assert friend.get(f"{console.api}/me", headers={"origin": "null"}).status_code == 403
        assert friend.get(f"{console.api}/me", headers={"origin": console.address}).status_code == 200
        crossed = friend.post(f"{console.local}/topics", json={"name": "x"}, headers={"sec-fetch-site": "cross-site"})
        assert crossed.status_code == 403


@pytest.mark.parametrize("origin", ["http://evil.example", None])
def test_a_foreign_websocket_is_refused(console: Console, origin: str | None) -> None:
    answer = _handshake(console, origin, TOKEN)
    assert answer.startswith("HTTP/1.1 403")


def test_a_websocket_without_a_login_is_refused(console: Console) -> None:
    assert _handshake(console, console.address, "wrong").startswith("HTTP/1.1 403")
    assert _handshake(console, console.address, TOKEN).startswith("HTTP/1.1 101")


def _handshake(console: Console, origin: str | None, token: str) -> str:
    split = urlsplit(console.address)
    assert split.hostname is not None and split.port is not None
    lines = [
        "GET /_nicegui_ws/socket.io/?EIO=4&transport=websocket HTTP/1.1",
        f"Host: {split.netloc}",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}",
        f"Authorization: Bearer {token}",
    ]
    if origin is not None:
        lines.append(f"Origin: {origin}")
    with socket.create_connection((split.hostname, split.port), timeout=30) as connection:
        connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        return connection.recv(4096).decode("latin-1")


def test_every_answer_carries_the_content_policy(console: Console) -> None:
    with console.client() as friend:
        answer = friend.get(f"{console.api}/me")
        policy = answer.headers["content-security-policy"]
        assert (
            "frame-ancestors 'none'" in policy
            and "'unsafe-inline'" not in policy.partition("script-src")[2].partition(";")[0]
        )
        assert answer.headers["x-frame-options"] == "DENY" and answer.headers["x-content-type-options"] == "nosniff"


def test_only_json_is_taken(console: Console) -> None:
    with console.client() as friend:
        for kind in ("text/plain", "application/x-www-form-urlencoded"):
            answer = friend.post(f"{console.local}/topics", content='{"name": "x"}', headers={"content-type": kind})
            assert answer.status_code == 422


# --- users and roles


@pytest.fixture(scope="module")
def with_users(console: Console, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("users")
    for user, role in (("vera", "viewer"), ("ed", "editor")):
        add_user(folder / "users", user, role, f"{user}-long-password")
    (folder / "policy.toml").write_text(
        '[[visible]]\nroles = ["viewer"]\ntopics = ["public.*"]\n'
        '[[mask]]\ntopics = ["public.*"]\nfields = ["value.card", "headers.secret"]\n'
        'except_roles = ["editor", "admin"]\n'
    )
    arguments = (
        "-b",
        console.broker.bootstrap,
        "--users",
        str(folder / "users"),
        "--policy",
        str(folder / "policy.toml"),
    )
    process, address = start_console(folder, *arguments, "--base-path", "/kafka")
    yield address
    stop(process)


@contextmanager
def _log_in(address: str, user: str) -> Iterator[httpx.Client]:
    with httpx.Client(headers={"x-penstock-console": "1"}, timeout=60) as client:
        form = {"name": user, "password": f"{user}-long-password", "next": "//evil.example"}
        answer = client.post(f"{address}/login", data=form)
        assert answer.status_code == 303 and answer.headers["location"] == "/kafka/", answer.text
        yield client


def test_a_viewer_sees_only_what_the_policy_shows_on_every_way_out(with_users: str) -> None:
    local = f"{with_users}/api/v1/clusters/local"
    with _log_in(with_users, "ed") as editor:
        for topic in ("public.cards", "secret.things"):
            assert editor.post(f"{local}/topics", json={"name": topic, "partitions": 1}).status_code == 201
            message = {"value": {"card": "4711", "n": 1}, "headers": [["secret", "s3"], ["open", "o"]]}
            assert editor.post(f"{local}/topics/{topic}/messages", json=message).status_code == 201
        assert "4711" in editor.get(f"{local}/topics/public.cards/messages").text
    with _log_in(with_users, "vera") as viewer:
        shown = viewer.get(f"{local}/topics/public.cards/messages").json()
        assert json.loads(shown[0]["value"]["text"]) == {"card": "•••", "n": 1}
        assert [h["value"]["text"] for h in shown[0]["headers"]] == ["•••", "o"]
        for way in (
            "messages/0/0",
            "messages/0/0/value",
            "messages?expression=value.card%20%3D%3D%20%224711%22",
            "messages?value=4711",
            "messages.jsonl",
            "messages.jsonl?value=4711",
            "tail?start=oldest&seconds=1",
        ):
            answer = viewer.get(f"{local}/topics/public.cards/{way}")
            assert answer.status_code == 200 and "4711" not in answer.text and "s3" not in answer.text, way
        for way in (
            "",
            "/configs",
            "/consumers",
            "/messages",
            "/messages/0/0",
            "/messages/0/0/value",
            "/messages.jsonl",
            "/tail?seconds=1",
        ):
            assert viewer.get(f"{local}/topics/secret.things{way}").status_code == 404, way
        assert "secret.things" not in viewer.get(f"{local}/topics?internal=true&size=500").text
        assert "secret.things" not in viewer.get(f"{local}/search?text=secret").text
        assert "secret.things" not in viewer.get(f"{local}/overview").text
        assert viewer.get(f"{local}/security").status_code == 403
        refused = viewer.post(f"{local}/topics", json={"name": "public.new"})
        assert refused.status_code == 403 and "editor" in refused.json()["error"]
        assert viewer.delete(f"{local}/topics/public.cards").status_code == 403


def test_under_a_base_path_nothing_answers_outside_of_it(with_users: str) -> None:
    assert with_users.endswith("/kafka")
    outside = with_users.removesuffix("/kafka")
    assert httpx.get(f"{outside}/login", timeout=60).status_code == 404
    assert httpx.get(f"{with_users}/login", timeout=60).status_code == 200
    assert httpx.get(f"{with_users}/", timeout=60).headers["location"] == "/kafka/login"


def test_wrong_passwords_cost_time_and_changes_are_written_down(tmp_path: Path) -> None:
    now = [100 * 3600.0]  # a machine that has been up for days
    logins = Logins("token", clock=lambda: now[0])
    waits = []
    for _ in range(FREE_TRIES + 3):
        logins.failed("user x", "10.0.0.1")
        waits.append(logins.wait_seconds("user x"))
    assert waits[: FREE_TRIES - 1] == [0.0] * (FREE_TRIES - 1) and waits[-1] > waits[-2] > 0
    assert logins.wait_seconds("user y", "10.0.0.1") == waits[-1] and logins.wait_seconds("user y") == 0
    login = logins.open(User("x", "viewer"))
    assert logins.find(login.id) is login
    now[0] += 3600 * 13
    assert logins.find(login.id) is None and login.over


def test_a_user_who_is_taken_out_of_the_file_gets_in_no_more(tmp_path: Path) -> None:
    file = tmp_path / "users"
    add_user(file, "anna", "admin", "a long password")
    users = UserFile(file)
    found = users.check("anna", "a long password")
    assert found is not None and found.role == "admin"
    assert users.check("anna", "another one") is None and users.check("nobody", "a long password") is None
    assert "a long password" not in file.read_text() and file.stat().st_mode & 0o077 == 0
    file.write_text("# nobody\n")
    assert users.check("anna", "a long password") is None


def test_off_loopback_it_takes_tls_and_users(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="TLS"):
        ConsoleSettings(host="0.0.0.0")
    with pytest.raises(UserError, match="users"):
        ConsoleSettings(host="0.0.0.0", insecure=True)
    file = tmp_path / "users"
    add_user(file, "anna", "admin", "a long password")
    settings = ConsoleSettings(host="0.0.0.0", insecure=True, users=file, host_names=("Kafka.Example",))
    assert settings.allowed_hosts == {"kafka.example"}


def test_the_process_that_serves_pages_never_imports_spark(console: Console) -> None:
    code = (
        "import sys, os; os.environ['NICEGUI_STORAGE_PATH'] = sys.argv[1]\n"
        "import penstock.console.server, penstock.console.frame, penstock.console.data.pipelines\n"
        "import penstock.pipelines.control.events\n"
        "assert not [m for m in sys.modules if m.startswith('pyspark')], 'pyspark'"
    )
    subprocess.run([sys.executable, "-c", code, str(console.state_dir)], check=True)
