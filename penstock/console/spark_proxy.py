"""Spark's own pages under the console's address: taken from the driver on loopback, read-only, after the login.

The browser's cookies and headers stay here; of Spark's answers only the body and a few headers go on. Spark marks its
own scripts with a nonce: those run, and nothing else does.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from typing import Annotated
from urllib.parse import quote, urlsplit

import httpx
from fastapi import APIRouter, Path, Request
from fastapi.responses import RedirectResponse, Response, StreamingResponse

from penstock.console.context import Context
from penstock.console.data import spark_pages
from penstock.console.data.spark_pages import Pages
from penstock.operate.errors import ExitCode, UserError

router = APIRouter(include_in_schema=False)

SECONDS = 30.0
KNOWN_SECONDS = 10.0
_PASSED = ("content-type", "content-length", "content-encoding", "cache-control", "content-disposition")
_NONCE = re.compile(r"'nonce-([A-Za-z0-9+/=_-]{8,100})'")
_known: dict[Pages, float] = {}

Name = Annotated[str, Path(min_length=1, max_length=200)]


@router.get("/spark/{cluster}/{name}")
def without_slash(request: Request, cluster: str, name: Name) -> RedirectResponse:
    return RedirectResponse(_prefix(request, cluster, name) + "/", 303)


@router.get("/spark/{cluster}/{name}/{rest:path}", response_model=None)
async def spark(request: Request, cluster: str, name: Name, rest: str) -> Response:
    context: Context = request.app.state.context
    viewer = context.viewer(request.state.login, cluster)
    found = await asyncio.to_thread(spark_pages.pages, viewer, name)
    if ".." in rest.split("/") or "\\" in rest:
        raise UserError("no such page", code=ExitCode.NOT_FOUND)
    client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{found.port}", timeout=SECONDS, trust_env=False)
    try:
        await _insist_on_application(client, found, name)
        client.cookies.clear()
        query = request.url.query
        target = f"/{quote(rest, safe='/')}" + (f"?{query}" if query else "")
        headers = {
            "x-forwarded-context": _prefix(request, cluster, name),
            "accept": request.headers.get("accept", "*/*"),
        }
        answer = await client.send(client.build_request("GET", target, headers=headers), stream=True)
    except httpx.HTTPError as error:
        await client.aclose()
        raise UserError(f"Spark of {name} does not answer: {type(error).__name__}", code=ExitCode.UNREACHABLE) from None
    except BaseException:
        await client.aclose()
        raise
    return _passed_on(client, answer, _prefix(request, cluster, name))


def _prefix(request: Request, cluster: str, name: str) -> str:
    context: Context = request.app.state.context
    return f"{context.base_path}/spark/{quote(cluster, safe='')}/{quote(name, safe='')}"


async def _insist_on_application(client: httpx.AsyncClient, found: Pages, name: str) -> None:
    now = time.monotonic()
    if _known.get(found, 0.0) > now:
        return
    answer = await client.get("/api/v1/applications")
    try:
        is_there = any(one.get("id") == found.app for one in answer.json())
    except (ValueError, AttributeError, TypeError):
        is_there = False
    if not is_there:
        raise UserError(f"what listens there is not the Spark of {name}", code=ExitCode.NOT_FOUND)
    for old in [one for one, until in _known.items() if until <= now]:
        del _known[old]
    _known[found] = now + KNOWN_SECONDS


def _passed_on(client: httpx.AsyncClient, answer: httpx.Response, prefix: str) -> Response:
    async def body() -> AsyncIterator[bytes]:
        try:
            async for part in answer.aiter_raw():
                yield part
        finally:
            await answer.aclose()
            await client.aclose()

    headers = {name: answer.headers[name] for name in _PASSED if name in answer.headers}
    nonce = _NONCE.search(answer.headers.get("content-security-policy", ""))
    headers["content-security-policy"] = content_policy(nonce[1] if nonce else None)
    if "location" in answer.headers:
        headers["location"] = own_location(answer.headers["location"], prefix)
    return StreamingResponse(body(), answer.status_code, headers)


def content_policy(nonce: str | None) -> str:
    scripts = "'self'" + (f" 'nonce-{nonce}'" if nonce else "")
    return (
        f"default-src 'self'; script-src {scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )


def own_location(given: str, prefix: str) -> str:
    """Wherever Spark sends a browser, it stays among Spark's pages."""
    split = urlsplit(given)
    path = "/" + split.path.lstrip("/\\")
    if not path.startswith(prefix + "/"):
        path = prefix + path
    return path + (f"?{split.query}" if split.query else "")
