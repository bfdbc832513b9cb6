"""The guard before everything: host, origin, login, and the headers that keep a page to itself.

It stands outside of FastAPI and NiceGUI, so that no route, static file or websocket can be reached around it.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, quote, urlencode, urlsplit

from penstock.console.access.logins import COOKIE, SESSION_SECONDS, Login, Logins
from penstock.console.access.users import TOKEN_USER

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1", "[::1]"})
OPEN_PATHS = frozenset(
    {
        "/login",
        "/login/oidc",
        "/login/oidc/callback",
        "/health",
        "/assets/console.css",
    }  # the last: the login page has it
)
OIDC_COOKIE = "penstock_console_oidc"
CSRF_HEADER = b"x-penstock-console"
LARGEST_BODY = 16 << 20
LARGEST_FORM = 10_000  # of who is not logged in
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:@/\s]+)(?::\d+)?")


@dataclass(frozen=True)
class Rules:
    hosts: frozenset[str]
    """Names under which the console may be asked for: without this a page of a rebound name could read it."""
    base_path: str = ""
    secure: bool = False


class Guard:
    def __init__(self, app: App, logins: Logins, rules: Rules) -> None:
        self.app = app  # NiceGUI looks for its server through this name
        self._logins, self._rules = logins, rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = {name: value for name, value in scope["headers"] if name != b"x-forwarded-prefix"}
        scope["headers"] = [pair for pair in scope["headers"] if pair[0] != b"x-forwarded-prefix"]
        path = self._inner_path(scope)
        refusal = self._refuse(scope, headers, path)
        if refusal is not None:
            await _answer(scope, send, *refusal)
            return
        assert path is not None
        login, by_cookie = self._login(headers)
        if login is None and scope["type"] == "http" and await self._token_login(scope, path, send):
            return
        if login is None and path not in OPEN_PATHS:
            await self._ask_to_log_in(scope, path, send)
            return
        if by_cookie and _changes(scope, path) and CSRF_HEADER not in headers:
            await _answer(scope, send, 403, f"with a cookie this needs the header {CSRF_HEADER.decode()}")
            return
        most = LARGEST_BODY if login is not None else LARGEST_FORM
        if int(headers.get(b"content-length", b"0") or 0) > most:
            await _answer(scope, send, 413, f"at most {most} bytes")
            return
        nonce = secrets.token_urlsafe(16)
        scope.setdefault("state", {})
        scope["state"] = {**scope["state"], "login": login, "csp_nonce": nonce}
        scope["root_path"] = self._rules.base_path
        listening = _Listening(receive)
        try:
            await self.app(scope, listening, _with_headers(send, nonce, path, self._rules.secure))
        except RuntimeError:
            # Starlette raises this when nobody waits for an answer any more: no fault, and nothing for the log.
            if not listening.gone:
                raise

    def _inner_path(self, scope: Scope) -> str | None:
        base, path = self._rules.base_path, str(scope["path"])
        if not base:
            return path
        if path == base:
            scope["path"] = base + "/"
            return "/"
        return path[len(base) :] if path.startswith(base + "/") else None

    def _refuse(self, scope: Scope, headers: dict[bytes, bytes], path: str | None) -> tuple[int, str] | None:
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if _name_of(host) not in self._rules.hosts:
            return 421, "this console is not known under that name; --host-name adds one"
        origin = headers.get(b"origin")
        if scope["type"] == "websocket" and origin is None:
            return 403, "a websocket needs an origin"
        if origin is not None:
            given = urlsplit(origin.decode("latin-1").lower())
            if given.netloc != host or given.scheme not in ("http", "https"):
                return 403, "a page of another origin may not ask"
        if scope["type"] == "http" and scope["method"] not in ("GET", "HEAD"):
            site = headers.get(b"sec-fetch-site", b"same-origin")
            if site not in (b"same-origin", b"none"):
                return 403, "a page of another site may not change anything"
        if path is None:
            return 404, f"the console lives under {self._rules.base_path}/"
        if b"transfer-encoding" in headers:
            return 411, "say how long it is: a body without content-length could go on without end"
        length = headers.get(b"content-length", b"0")
        if length and not length.isdigit():
            return 400, "content-length is no number"
        return None

    def _login(self, headers: dict[bytes, bytes]) -> tuple[Login | None, bool]:
        """(who asks, whether by cookie)."""
        bearer = headers.get(b"authorization", b"")
        if bearer[:7].lower() == b"bearer ":
            given = bearer[7:].decode("latin-1").strip()
            if self._logins.is_token(given):
                return Login("", TOKEN_USER, float("inf"), 0.0), False
            return self._logins.find(given), False
        for part in headers.get(b"cookie", b"").decode("latin-1").split(";"):
            name, _, value = part.strip().partition("=")
            if name == COOKIE:
                return self._logins.find(value), True
        return None, False

    async def _token_login(self, scope: Scope, path: str, send: Send) -> bool:
        """The address that was printed at the start: its token becomes a cookie and leaves the address."""
        query = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = query.pop("token", [""])[0]
        address = str((scope.get("client") or ("?",))[0])
        if not given or scope["method"] != "GET" or self._logins.wait_seconds(address) > 0:
            return False
        if not self._logins.is_token(given):
            self._logins.failed(address)
            return False
        self._logins.succeeded(address)
        login = self._logins.open(TOKEN_USER)
        target = self._rules.base_path + quote(path, safe="/%:@!$&'()*+,;=")
        rest = urlencode(query, doseq=True)
        await send_response(
            send,
            303,
            b"",
            [
                (b"location", (target + (f"?{rest}" if rest else "")).encode()),
                (b"set-cookie", self.cookie(login.id).encode()),
                (b"cache-control", b"no-store"),
                (b"referrer-policy", b"no-referrer"),
            ],
        )
        return True

    def cookie(self, session_id: str, seconds: float = SESSION_SECONDS) -> str:
        secure = "; Secure" if self._rules.secure else ""
        path = self._rules.base_path or "/"
        return f"{COOKIE}={session_id}; Path={path}; Max-Age={int(seconds)}; HttpOnly; SameSite=Strict{secure}"

    def oidc_cookie(self, content: str, seconds: float) -> str:
        """Of a login under way: the provider sends the browser back from another site, so it is Lax."""
        secure = "; Secure" if self._rules.secure else ""
        path = f"{self._rules.base_path}/login/oidc"
        return f"{OIDC_COOKIE}={content}; Path={path}; Max-Age={int(seconds)}; HttpOnly; SameSite=Lax{secure}"

    async def _ask_to_log_in(self, scope: Scope, path: str, send: Send) -> None:
        if scope["type"] == "websocket" or path.startswith(("/api/", "/_nicegui")):
            await _answer(scope, send, 401, "log in, or send the header Authorization: Bearer TOKEN")
            return
        next_page = f"?next={quote(self._asked_for(scope), safe='/')}" if path != "/" else ""
        location = f"{self._rules.base_path}/login{next_page}".encode()
        await send_response(send, 303, b"", [(b"location", location), (b"cache-control", b"no-store")])

    def _asked_for(self, scope: Scope) -> str:
        """Path and query as they were sent: decoded, a name with / in it would be two parts of the path afterwards."""
        path: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
        query: bytes = scope["query_string"]
        asked = (path + (b"?" + query if query else b"")).decode("latin-1")
        return asked.removeprefix(self._rules.base_path)


class _Listening:
    """What the browser sends, and whether it went away meanwhile."""

    def __init__(self, receive: Receive) -> None:
        self._receive, self.gone = receive, False

    async def __call__(self) -> MutableMapping[str, Any]:
        message = await self._receive()
        self.gone = self.gone or message["type"] == "http.disconnect"
        return message


def _name_of(host: str) -> str:
    """Without the port; nothing of what is no host and port at all."""
    found = _HOST.fullmatch(host)
    return found[1] if found else ""


def _changes(scope: Scope, path: str) -> bool:
    return scope["type"] == "http" and scope["method"] not in ("GET", "HEAD", "OPTIONS") and path.startswith("/api/")


def content_policy(nonce: str) -> str:
    """NiceGUI's Vue compiles its templates in the browser: that alone needs `unsafe-eval`."""
    return (
        f"default-src 'self'; script-src 'self' 'nonce-{nonce}' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; font-src 'self'; connect-src 'self'; object-src 'none'; base-uri 'none'; "
        "form-action 'self'; frame-ancestors 'none'"
    )


def _with_headers(send: Send, nonce: str, path: str, secure: bool) -> Send:
    added = [
        (b"content-security-policy", content_policy(nonce).encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"x-frame-options", b"DENY"),
        # Not no-referrer: browsers then say `Origin: null` with a form of our own, and nobody could log in or out.
        (b"referrer-policy", b"same-origin"),
        (b"cross-origin-opener-policy", b"same-origin"),
        (b"cross-origin-resource-policy", b"same-origin"),
    ]
    if secure:
        added.append((b"strict-transport-security", b"max-age=31536000"))
    if path.startswith("/api/"):
        added.append((b"cache-control", b"no-store"))

    async def forward(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            own = list(message.get("headers", []))
            names = {name.lower() for name, _ in own}
            message["headers"] = [*own, *(pair for pair in added if pair[0] not in names)]
        await send(message)

    return forward


async def _answer(scope: Scope, send: Send, status: int, detail: str) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": detail})
        return
    body = json.dumps({"error": detail}).encode()
    await send_response(send, status, body, [(b"content-type", b"application/json")])


async def send_response(send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    more = [(b"content-length", str(len(body)).encode()), (b"x-content-type-options", b"nosniff")]
    await send({"type": "http.response.start", "status": status, "headers": headers + more})
    await send({"type": "http.response.body", "body": body})
