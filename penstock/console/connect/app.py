"""The routes of Kafka Connect's REST, and its form of errors: `{"error_code": …, "message": …}`."""

from __future__ import annotations

import importlib.metadata
from typing import Annotated, Any

from fastapi import Body, Depends, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from penstock.client.errors import ClientError
from penstock.console.connect import connectors
from penstock.console.connect.connectors import ConnectError
from penstock.console.context import Context
from penstock.console.data import pipelines
from penstock.console.data.viewer import Viewer
from penstock.console.rest.app import status_of
from penstock.operate.errors import UserError


def _viewer(request: Request) -> Viewer:
    context: Context = request.app.state.context
    return context.viewer(request.state.login)


Asker = Annotated[Viewer, Depends(_viewer)]
Config = Annotated[dict[str, str], Body()]


def create_app(context: Context) -> FastAPI:
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    app.state.context = context
    _look(app)
    _change(app)
    _plugins(app)
    app.add_exception_handler(ConnectError, _told)
    app.add_exception_handler(UserError, _told)
    app.add_exception_handler(ClientError, _told)
    app.add_exception_handler(RequestValidationError, _told)
    app.add_exception_handler(HTTPException, _told)
    return app


async def _told(_request: Request, error: Exception) -> JSONResponse:
    if isinstance(error, ConnectError):
        code, message = error.code, error.message
    elif isinstance(error, RequestValidationError):
        first = error.errors()[0]
        code, message = 400, f"{'.'.join(str(part) for part in first.get('loc', ()))}: {first.get('msg')}"
    elif isinstance(error, HTTPException):
        code, message = error.status_code, f"HTTP {error.status_code} {error.detail}"
    else:
        code, message = status_of(error), str(error)
    return JSONResponse({"error_code": code, "message": message}, code)


def _look(app: FastAPI) -> None:
    @app.get("/")
    def server(viewer: Asker) -> dict[str, Any]:
        version = importlib.metadata.version("penstock")
        return {"version": version, "commit": "penstock", "kafka_cluster_id": viewer.snapshot.view.cluster_id}

    @app.get("/connectors")
    def list_connectors(viewer: Asker, expand: Annotated[list[str] | None, Query()] = None) -> Any:
        if not expand:
            return connectors.names(viewer)
        shown: dict[str, dict[str, Any]] = {}
        for name in connectors.names(viewer):
            one = pipelines.pipeline(viewer, name)
            parts = {"info": connectors.info, "status": connectors.status}
            shown[name] = {part: parts[part](one) for part in expand if part in parts}
        return shown

    @app.get("/connectors/{name}")
    def get_connector(viewer: Asker, name: str) -> dict[str, Any]:
        return connectors.info(connectors.found(viewer, name))

    @app.get("/connectors/{name}/config")
    def get_config(viewer: Asker, name: str) -> dict[str, str]:
        return connectors.config(connectors.found(viewer, name))

    @app.get("/connectors/{name}/status")
    def get_status(viewer: Asker, name: str) -> dict[str, Any]:
        return connectors.status(connectors.found(viewer, name))

    @app.get("/connectors/{name}/tasks")
    def get_tasks(viewer: Asker, name: str) -> list[dict[str, Any]]:
        return connectors.task_configs(connectors.found(viewer, name))

    @app.get("/connectors/{name}/tasks/{task}/status")
    def get_task_status(viewer: Asker, name: str, task: int) -> dict[str, Any]:
        tasks: list[dict[str, Any]] = connectors.status(connectors.found(viewer, name))["tasks"]
        if not 0 <= task < len(tasks):
            raise ConnectError(404, f"No status found for task {name}-{task}")
        return tasks[task]

    @app.get("/connectors/{name}/topics")
    def get_topics(viewer: Asker, name: str) -> dict[str, Any]:
        return {name: {"topics": connectors.topics(connectors.found(viewer, name))}}


def _change(app: FastAPI) -> None:
    @app.post("/connectors", status_code=201)
    def create(viewer: Asker, name: Annotated[str, Body()], config: Config) -> dict[str, Any]:
        return connectors.put(viewer, name, config, new=True)[0]

    @app.put("/connectors/{name}/config")
    def put_config(viewer: Asker, name: str, config: Config, response: Response) -> dict[str, Any]:
        made, is_new = connectors.put(viewer, name, config, new=False)
        response.status_code = 201 if is_new else 200
        return made

    @app.delete("/connectors/{name}", status_code=204)
    def delete(viewer: Asker, name: str) -> None:
        connectors.found(viewer, name)
        pipelines.delete(viewer, name)

    @app.post("/connectors/{name}/restart", status_code=204)
    def restart(viewer: Asker, name: str) -> None:
        connectors.found(viewer, name)
        pipelines.change(viewer, name, "running")

    @app.put("/connectors/{name}/resume", status_code=202)
    def resume(viewer: Asker, name: str) -> Response:
        return _desire(viewer, name, "running", 202)

    @app.put("/connectors/{name}/pause", status_code=202)
    def pause(viewer: Asker, name: str) -> Response:
        return _desire(viewer, name, "stopped", 202)

    @app.put("/connectors/{name}/stop", status_code=204)
    def stop(viewer: Asker, name: str) -> Response:
        return _desire(viewer, name, "stopped", 204)


def _desire(viewer: Viewer, name: str, desired: Any, code: int) -> Response:
    """What is so already is not done again."""
    if connectors.found(viewer, name)["desired"] != desired:
        pipelines.change(viewer, name, desired)
    return Response(status_code=code)


def _plugins(app: FastAPI) -> None:
    @app.get("/connector-plugins")
    def plugins(viewer: Asker) -> list[dict[str, str]]:
        viewer.require("viewer")
        version = importlib.metadata.version("penstock")
        return [{"class": connectors.CLASS, "type": "source", "version": version}]

    @app.put("/connector-plugins/{plugin}/config/validate")
    def validate(viewer: Asker, plugin: str, config: Config) -> dict[str, Any]:
        given = config.get("connector.class")
        if given and given.rpartition(".")[2] != plugin.rpartition(".")[2]:
            raise ConnectError(400, f"Included connector type {given} does not match request type {plugin}")
        if plugin not in (connectors.CLASS, connectors.CLASS.rpartition(".")[2]):
            told = "Failed to find any class that implements Connector and which name matches"
            available = f"available connectors are: PluginDesc{{class '{connectors.CLASS}'}}"
            raise ConnectError(400, f"{told} {plugin}, {available}")
        return connectors.validate(viewer, config)
