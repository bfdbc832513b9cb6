"""The routes of Kafka Connect's REST, and its form of errors: `{"error_code": …, "message": …}`.

Held beside a real worker by tests/console/test_connect_worker.py; docs/guide/connect.md says where the two differ.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Body, Depends, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException

from penstock.client.errors import ClientError
from penstock.console.connect import connectors
from penstock.console.connect.connectors import ConnectError
from penstock.console.connect.manners import texts
from penstock.console.context import Context
from penstock.console.data import pipelines
from penstock.console.data.viewer import Viewer
from penstock.console.rest.app import status_of
from penstock.operate.errors import UserError


def _viewer(request: Request) -> Viewer:
    context: Context = request.app.state.context
    return context.viewer(request.state.login)


def _config(given: Annotated[dict[str, Any], Body()]) -> dict[str, str]:
    return _texts(given)


def _texts(given: dict[str, Any]) -> dict[str, str]:
    try:
        return texts(given)
    except ValueError as error:
        raise ConnectError(400, f"config.{error}: a text, a number or a truth value is expected") from None


class NewConnector(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str | None = None
    config: dict[str, Any]
    initial_state: Literal["RUNNING", "PAUSED", "STOPPED"] = "RUNNING"


Asker = Annotated[Viewer, Depends(_viewer)]
Config = Annotated[dict[str, str], Depends(_config)]


def create_app(context: Context) -> FastAPI:
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.state.context = context
    _look(app)
    _change(app)
    _steer(app)
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
        version = connectors.version()
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
        return connectors.status(connectors.found(viewer, name, f"No status found for connector {name}"))

    @app.get("/connectors/{name}/tasks")
    def get_tasks(viewer: Asker, name: str) -> list[dict[str, Any]]:
        return connectors.task_configs(connectors.found(viewer, name))

    @app.get("/connectors/{name}/tasks/{task:int}/status")
    def get_task_status(viewer: Asker, name: str, task: int) -> dict[str, Any]:
        absent = f"No status found for task {name}-{task}"
        tasks: list[dict[str, Any]] = connectors.status(connectors.found(viewer, name, absent))["tasks"]
        if task >= len(tasks):
            raise ConnectError(404, absent)
        return tasks[task]

    @app.get("/connectors/{name}/topics")
    def get_topics(viewer: Asker, name: str) -> dict[str, Any]:
        """Of a connector that is not there: none, as Connect has it."""
        known = name in connectors.names(viewer)
        return {name: {"topics": connectors.topics(pipelines.pipeline(viewer, name)) if known else []}}


def _change(app: FastAPI) -> None:
    @app.post("/connectors", status_code=201)
    def create(viewer: Asker, given: NewConnector) -> dict[str, Any]:
        desired: Literal["running", "stopped"] = "running" if given.initial_state == "RUNNING" else "stopped"
        return connectors.put(viewer, given.name or "", _texts(given.config), new=True, desired=desired)[0]

    @app.put("/connectors/{name}/config")
    def put_config(viewer: Asker, name: str, config: Config, response: Response) -> dict[str, Any]:
        made, is_new = connectors.put(viewer, name, config, new=False)
        response.status_code = 201 if is_new else 200
        return made

    @app.patch("/connectors/{name}/config")
    def patch_config(viewer: Asker, name: str, change: Annotated[dict[str, Any], Body()]) -> dict[str, Any]:
        """Keys that are given take the place of those that were there; null takes one away."""
        known = connectors.config(connectors.found(viewer, name))
        return connectors.put(viewer, name, _texts({**known, **change}), new=False)[0]

    @app.delete("/connectors/{name}")
    def delete(viewer: Asker, name: str) -> Response:
        connectors.found(viewer, name)
        pipelines.delete(viewer, name)
        return Response(status_code=204)


def _steer(app: FastAPI) -> None:
    @app.post("/connectors/{name}/restart")
    def restart(viewer: Asker, name: str, includeTasks: bool = False, onlyFailed: bool = False) -> Response:  # noqa: N803
        one = connectors.found(viewer, name, f"Unknown connector: {name}")
        restarted = connectors.restart(viewer, one, only_failed=onlyFailed)
        if not includeTasks and not onlyFailed:
            return Response(status_code=204)
        return JSONResponse(connectors.status(one, "RESTARTING" if restarted else None), 202)

    @app.post("/connectors/{name}/tasks/{task:int}/restart")
    def restart_task(viewer: Asker, name: str, task: int) -> Response:
        one = connectors.found(viewer, name, f"Unknown connector: {name}")
        if task >= len(connectors.status(one)["tasks"]):
            raise ConnectError(404, f"Unknown task: {name}-{task}")
        connectors.restart(viewer, one, only_failed=False)
        return Response(status_code=204)

    @app.put("/connectors/{name}/resume")
    def resume(viewer: Asker, name: str) -> Response:
        return _desire(viewer, name, "running", 202)

    @app.put("/connectors/{name}/pause")
    def pause(viewer: Asker, name: str) -> Response:
        return _desire(viewer, name, "stopped", 202)

    @app.put("/connectors/{name}/stop")
    def stop(viewer: Asker, name: str) -> Response:
        return _desire(viewer, name, "stopped", 204)

    @app.put("/connectors/{name}/topics/reset")
    def reset_topics(name: str) -> Response:
        """A pipeline's topics stand in its spec: nothing is tracked that could be forgotten."""
        raise ConnectError(403, "Topic tracking reset is disabled.")


def _desire(viewer: Viewer, name: str, desired: Any, code: int) -> Response:
    """What is so already is not done again."""
    if connectors.found(viewer, name, f"Unknown connector {name}")["desired"] != desired:
        pipelines.change(viewer, name, desired)
    return Response(status_code=code)


def _plugins(app: FastAPI) -> None:
    @app.get("/connector-plugins")
    def plugins(viewer: Asker) -> list[dict[str, str]]:
        viewer.require("viewer")
        return [{"class": connectors.CLASS, "type": "source", "version": connectors.version()}]

    @app.get("/connector-plugins/{plugin}/config")
    def plugin_config(viewer: Asker, plugin: str) -> list[dict[str, Any]]:
        viewer.require("viewer")
        if plugin not in connectors.CLASS_NAMES:
            raise ConnectError(404, f"Unknown plugin {plugin}.")
        return connectors.definitions()

    @app.put("/connector-plugins/{plugin}/config/validate")
    def validate(viewer: Asker, plugin: str, config: Config) -> dict[str, Any]:
        given = config.get("connector.class")
        if given and given.rpartition(".")[2] != plugin.rpartition(".")[2]:
            raise ConnectError(400, f"Included connector type {given} does not match request type {plugin}")
        connectors.insist_on_class(config)
        return connectors.validate(viewer, config)

    @app.get("/health")
    def health(request: Request) -> Response:
        """Open to all, as a worker's: it tells nothing but whether brokers answer."""
        context: Context = request.app.state.context
        if any(cluster.error for cluster in context.clusters.values()):
            return JSONResponse({"status": "unhealthy", "message": "The brokers do not answer."}, 503)
        told = "Worker has completed startup and is ready to handle requests."
        return JSONResponse({"status": "healthy", "message": told})
