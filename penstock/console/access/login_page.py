"""Logging in and out: a plain page without scripts, and the two routes behind it."""

from __future__ import annotations

import asyncio
import html
from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse

from penstock.console.access.guard import LARGEST_FORM, TOKEN_USER, Guard
from penstock.console.access.users import User
from penstock.console.context import Context

router = APIRouter(include_in_schema=False)


@router.get("/health")
def health() -> PlainTextResponse:
    return PlainTextResponse("ok\n")


@router.get("/login")
def login_form(request: Request) -> HTMLResponse:
    return _page(request.app.state.context, _inner(request.query_params.get("next", "/")))


@router.post("/login", response_model=None)
async def log_in(request: Request) -> HTMLResponse | RedirectResponse:
    context: Context = request.app.state.context
    guard: Guard = request.app.state.guard
    body = await request.body()
    fields = parse_qs(body[:LARGEST_FORM].decode("utf-8", "replace"))
    name, password = fields.get("name", [""])[0], fields.get("password", [""])[0]
    next_page = _inner(fields.get("next", ["/"])[0])
    address = request.client.host if request.client else "?"
    async with context.logins.checking:
        wait = context.logins.wait_seconds(f"user {name}", address)
        if wait > 0:
            return _page(context, next_page, f"too many failed tries: wait {int(wait) + 1} seconds", 429)
        user = await asyncio.to_thread(_check, context, name, password)
        if user is None:
            context.logins.failed(f"user {name}", address)
        else:
            context.logins.succeeded(f"user {name}", address)
    if user is None:
        context.audit.write(name or "?", "login", address, ok=False)
        wrong = "the token is wrong" if context.users is None else "name or password is wrong"
        return _page(context, next_page, wrong, 401)
    context.audit.write(user.name, "login", address)
    login = context.logins.open(user)
    answer = RedirectResponse(context.base_path + next_page, 303)
    answer.headers["set-cookie"] = guard.cookie(login.id)
    return answer


@router.post("/logout")
def log_out(request: Request) -> RedirectResponse:
    context: Context = request.app.state.context
    guard: Guard = request.app.state.guard
    context.logins.close(request.state.login.id)
    context.audit.write(request.state.login.user.name, "logout", "")
    answer = RedirectResponse(context.base_path + "/login", 303)
    answer.headers["set-cookie"] = guard.cookie("", 0)
    return answer


def _check(context: Context, name: str, password: str) -> User | None:
    if context.users is None:
        return TOKEN_USER if context.logins.is_token(password) else None
    return context.users.check(name, password)


def _inner(target: str) -> str:
    """Only a page of our own may follow a login."""
    return target if target.startswith("/") and not target.startswith("//") and "\\" not in target else "/"


def _page(context: Context, next_page: str, error: str = "", status: int = 200) -> HTMLResponse:
    base = html.escape(context.base_path)
    if context.users is None:
        fields = '<label>Token<input name="password" type="password" autocomplete="off" autofocus required></label>'
        hint = "<p>Open the address that was printed when the console started, or paste its token.</p>"
    else:
        fields = (
            '<label>Name<input name="name" autocomplete="username" autofocus required></label>'
            '<label>Password<input name="password" type="password" autocomplete="current-password" required></label>'
        )
        hint = ""
    told = f'<p role="alert" class="pk-alert">{html.escape(error)}</p>' if error else ""
    return HTMLResponse(
        f"""<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Log in · Penstock</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="{base}/assets/console.css"></head>
<body class="pk-login"><main><h1>Penstock</h1>{hint}{told}
<form method="post" action="{base}/login">{fields}
<input type="hidden" name="next" value="{html.escape(next_page, quote=True)}">
<button>Log in</button></form></main></body></html>""",
        status,
    )
