"""Logging in and out: a plain page without scripts, and the two routes behind it."""

from __future__ import annotations

import asyncio
import html
import re
from urllib.parse import parse_qs, quote

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse

from penstock.client.errors import ClientError
from penstock.console.access.guard import LARGEST_FORM, OIDC_COOKIE, Guard
from penstock.console.access.oidc import PENDING_SECONDS, LoginRefused, OidcLogins
from penstock.console.context import Context
from penstock.operate.errors import ExitCode, UserError

router = APIRouter(include_in_schema=False)

_OWN_PAGE = re.compile(r"/(?:[^/\\\x00-\x20\x7f][^\\\x00-\x20\x7f]*)?")


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
        try:
            user = await asyncio.to_thread(context.ways.check, context.logins, name, password)
        except (UserError, ClientError) as error:
            return _page(context, next_page, str(error), 503)
        if user is None:
            context.logins.failed(f"user {name}", address)
        else:
            context.logins.succeeded(f"user {name}", address)
    if user is None:
        context.audit.write(name or "?", "login", address, ok=False)
        wrong = "the token is wrong" if context.ways.only_token else "name or password is wrong"
        return _page(context, next_page, wrong, 401)
    context.audit.write(user.name, "login", address, by=user.source)
    login = context.logins.open(user)
    answer = RedirectResponse(context.base_path + next_page, 303)
    answer.headers["set-cookie"] = guard.cookie(login.id)
    return answer


@router.get("/login/oidc", response_model=None)
async def begin_oidc(request: Request) -> HTMLResponse | RedirectResponse:
    context: Context = request.app.state.context
    guard: Guard = request.app.state.guard
    next_page = _inner(request.query_params.get("next", "/"))
    try:
        there, cookie = await _oidc(context).begin(next_page)
    except LoginRefused as error:
        return _page(context, next_page, str(error), 503)
    answer = RedirectResponse(there, 303)
    answer.headers["set-cookie"] = guard.oidc_cookie(cookie, PENDING_SECONDS)
    return answer


@router.get("/login/oidc/callback", response_model=None)
async def finish_oidc(request: Request) -> HTMLResponse:
    """The browser comes from elsewhere, so its next request would go without the new cookie if we sent it on: it is
    our own page that goes on."""
    context: Context = request.app.state.context
    guard: Guard = request.app.state.guard
    address = request.client.host if request.client else "?"
    try:
        user, next_page = await _oidc(context).finish(request.query_params, request.cookies.get(OIDC_COOKIE, ""))
    except LoginRefused as error:
        context.audit.write("?", "login", address, ok=False, by="oidc", why=str(error))
        refused = _page(context, "/", str(error), 401)
        refused.headers["set-cookie"] = guard.oidc_cookie("", 0)
        return refused
    context.audit.write(user.name, "login", address, by=user.source)
    login = context.logins.open(user)
    target = html.escape(context.base_path + _inner(next_page), quote=True)
    answer = HTMLResponse(
        f'''<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Logged in · Penstock</title>
<meta http-equiv="refresh" content="0;url={target}"></head><body><a href="{target}">Go on</a></body></html>'''
    )
    answer.headers.append("set-cookie", guard.cookie(login.id))
    answer.headers.append("set-cookie", guard.oidc_cookie("", 0))
    return answer


def _oidc(context: Context) -> OidcLogins:
    if context.ways.oidc is None:
        raise UserError("this console has no single sign-on", code=ExitCode.NOT_FOUND)
    return context.ways.oidc


@router.post("/logout")
def log_out(request: Request) -> RedirectResponse:
    context: Context = request.app.state.context
    guard: Guard = request.app.state.guard
    context.logins.close(request.state.login.id)
    context.audit.write(request.state.login.user.name, "logout", "")
    answer = RedirectResponse(context.base_path + "/login", 303)
    answer.headers["set-cookie"] = guard.cookie("", 0)
    return answer


def _inner(target: str) -> str:
    """Only a page of our own may follow a login. Browsers drop tabs and line ends, and take \\ for /."""
    return target if _OWN_PAGE.fullmatch(target) else "/"


def _page(context: Context, next_page: str, error: str = "", status: int = 200) -> HTMLResponse:
    base = html.escape(context.base_path)
    ways = context.ways
    if ways.only_token:
        fields = '<label>Token<input name="password" type="password" autocomplete="off" autofocus required></label>'
        hint = "<p>Open the address that was printed when the console started, or paste its token.</p>"
    elif ways.takes_passwords:
        fields = (
            '<label>Name<input name="name" autocomplete="username" autofocus required></label>'
            '<label>Password<input name="password" type="password" autocomplete="current-password" required></label>'
        )
        hint = ""
    else:
        fields = hint = ""
    form = (
        f'''<form method="post" action="{base}/login">{fields}
<input type="hidden" name="next" value="{html.escape(next_page, quote=True)}">
<button>Log in</button></form>'''
        if fields
        else ""
    )
    if ways.oidc is not None:
        there = html.escape(f"{context.base_path}/login/oidc?next={quote(next_page, safe='/')}", quote=True)
        form += f'<p><a href="{there}">Log in with {html.escape(ways.oidc.rules.title)}</a></p>'
    told = f'<p role="alert" class="pk-alert">{html.escape(error)}</p>' if error else ""
    return HTMLResponse(
        f"""<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Log in · Penstock</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="{base}/assets/console.css"></head>
<body class="pk-login"><main><h1>Penstock</h1>{hint}{told}{form}</main></body></html>""",
        status,
    )
