"""The REST application: errors as JSON, the viewer of a request, and the routers of every part."""

from __future__ import annotations

import logging
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from penstock.client.errors import AuthenticationFailed, BrokerUnreachable, ClientError, ConnectionLost, KafkaError
from penstock.console.context import Context
from penstock.console.data import paging
from penstock.console.data.viewer import AccessDenied, Viewer
from penstock.console.rest.models import Error
from penstock.operate.errors import ExitCode, UserError

log = logging.getLogger(__name__)

PREFIX = "/api/v1"
STATUS = {
    ExitCode.USAGE: 400,
    ExitCode.NOT_FOUND: 404,
    ExitCode.REFUSED: 409,
    ExitCode.UNREACHABLE: 503,
}
ERRORS: dict[int | str, dict[str, Any]] = {
    code: {"model": Error, "description": text}
    for code, text in {
        400: "What was asked for makes no sense.",
        401: "Nobody is logged in.",
        403: "The role does not allow it.",
        404: "There is no such thing.",
        409: "The cluster refuses it.",
        422: "A parameter or the body is not as described.",
        503: "The cluster cannot be reached.",
    }.items()
}


def viewer(request: Request, cluster: str) -> Viewer:
    context: Context = request.app.state.context
    return context.viewer(request.state.login, cluster)


def page_query(
    search: Annotated[str, Query(max_length=249, description="Only names that hold this.")] = "",
    sort: Annotated[str, Query(max_length=50, description="The field to sort by.")] = "",
    descending: bool = False,
    page: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
    size: Annotated[int, Query(ge=1, le=paging.LARGEST_PAGE)] = 25,
) -> paging.Query:
    return paging.Query(search, sort, descending, page, size)


Asker = Annotated[Viewer, Depends(viewer)]
PageQuery = Annotated[paging.Query, Depends(page_query)]


def new_router(tag: str) -> APIRouter:
    return APIRouter(prefix=PREFIX + "/clusters/{cluster}", tags=[tag], responses=ERRORS)


def create_app(context: Context) -> FastAPI:
    from penstock.console.rest import cluster, groups, messages, pipelines, security, sql, topics

    app = FastAPI(
        title="Penstock console",
        version="1",
        description="Everything that the console's pages can do. Send `Authorization: Bearer TOKEN`.",
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None,
        redoc_url=None,
    )
    app.state.context = context
    parts = (topics, messages, groups, pipelines, security, sql)
    for router in (cluster.top, cluster.router, *(part.router for part in parts)):
        app.include_router(router)
    app.add_exception_handler(UserError, _user_error)
    app.add_exception_handler(ClientError, _client_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)
    return app


def status_of(error: Exception) -> int:
    if isinstance(error, AccessDenied | AuthenticationFailed):
        return 403
    if isinstance(error, UserError):
        return STATUS.get(error.code, 409)
    if isinstance(error, KafkaError):
        return 409
    return 503 if isinstance(error, BrokerUnreachable | ConnectionLost | ClientError) else 500


async def _user_error(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, UserError)
    return _answer(status_of(error), error.message, error.hint)


async def _client_error(_request: Request, error: Exception) -> JSONResponse:
    return _answer(status_of(error), str(error))


async def _invalid(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first.get("loc", ()))
    return _answer(422, f"{where}: {first.get('msg')}")


async def _http_error(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": str(error.detail), "hint": None}, error.status_code, headers=error.headers)


def _answer(status: int, error: str, hint: str | None = None) -> JSONResponse:
    return JSONResponse({"error": error, "hint": hint}, status)
