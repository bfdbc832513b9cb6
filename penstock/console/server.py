"""The console's process: FastAPI for REST, NiceGUI for pages, the guard around both, uvicorn under it all."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

from penstock.console import policy, spark_proxy, workers
from penstock.console.access import access_file, login_page
from penstock.console.access.audit import Audit
from penstock.console.access.guard import Guard, Rules
from penstock.console.access.logins import Logins
from penstock.console.access.oidc import OidcLogins
from penstock.console.access.scram_logins import ScramLogins
from penstock.console.access.users import UserFile
from penstock.console.access.ways_in import WaysIn
from penstock.console.cluster import Cluster, ConsoleSession
from penstock.console.connect import app as connect
from penstock.console.connect.gate import ConnectGate
from penstock.console.connect.manners import Manners
from penstock.console.context import Context
from penstock.console.rest.app import create_app
from penstock.console.search import pool as searches
from penstock.console.settings import ConsoleSettings
from penstock.operate.errors import UserError, not_found, usage_error


class _Server(uvicorn.Server):
    """Signals are ours: uvicorn would raise them again after its end, and nothing of ours would be closed."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def leave(self) -> None:
        self.force_exit = self.should_exit  # the second signal: at once
        self.should_exit = True


THREADS = 64  # tails and searches wait in threads


def create(settings: ConsoleSettings, clusters: list[Cluster], *, with_pages: bool = True) -> tuple[Guard, Context]:
    """The whole application, not yet served; `with_pages=False` leaves NiceGUI out (REST alone)."""
    settings.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    ways = _ways_in(settings, clusters)
    context = Context(
        clusters={cluster.name: cluster for cluster in clusters},
        logins=Logins(
            settings.token or secrets.token_urlsafe(24),
            is_current=ways.is_current,
        ),
        audit=Audit(settings.state_dir / "audit.jsonl"),
        policy=policy.load(settings.policy),
        ways=ways,
        base_path=settings.base_path,
        state_dir=settings.state_dir,
    )
    app = create_app(context)
    app.include_router(login_page.router)
    app.include_router(spark_proxy.router)
    if with_pages:
        _add_pages(app, context)
    guard = Guard(app, context.logins, Rules(settings.allowed_hosts, settings.base_path, settings.secure))
    app.state.guard = guard
    return guard, context


def _ways_in(settings: ConsoleSettings, clusters: list[Cluster]) -> WaysIn:
    access = access_file.load(settings.access)
    scram = oidc = None
    if access.scram is not None:
        by_name = {cluster.name: cluster for cluster in clusters}
        name = access.scram.cluster or clusters[0].name
        if name not in by_name:
            raise not_found("cluster", name, by_name)
        scram = ScramLogins(access.scram, name, by_name[name].session.properties, ConsoleSession)
    if access.oidc is not None:
        if access.oidc.redirect_uri is None and not settings.on_loopback:
            told = "[oidc] redirect_uri is missing: where browsers reach this console"
            raise usage_error(told, f"for example https://console.example{settings.base_path}/login/oidc/callback")
        redirect_uri = access.oidc.redirect_uri or f"{settings.address}login/oidc/callback"
        oidc = OidcLogins(access.oidc, access.client_secret, redirect_uri)
    return WaysIn(access, UserFile(settings.users) if settings.users is not None else None, scram, oidc)


def _add_pages(app: FastAPI, context: Context) -> None:
    os.environ.setdefault("NICEGUI_STORAGE_PATH", str(context.state_dir / "nicegui"))
    from penstock.console.frame import install

    install(app, context)


def bind(settings: ConsoleSettings, port: int, option: str) -> socket.socket:
    """A listening socket, taken before anything else is done: a taken port is told at once."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, port))
    except OSError as error:
        listening.close()
        raise UserError(
            f"the console cannot listen at {settings.host}:{port}: {error.strerror}",
            f"take another port with {option}",
        ) from error
    return listening


def run(settings: ConsoleSettings, clusters: list[Cluster], say: Callable[[str], None]) -> None:
    """Serve until told to stop. Says `ready: ADDRESS` (on loopback with the token) once it answers."""
    sockets = [bind(settings, settings.port, "--port")]
    if settings.connect_port is not None:
        sockets.append(bind(settings, settings.connect_port, "--connect-port"))
    guard, context = create(settings, clusters)
    apps: list[Guard] = [guard]
    if settings.connect_port is not None:
        rules = Rules(settings.allowed_hosts, "", settings.secure)
        apps.append(ConnectGate(Manners(connect.create_app(context)), context.logins, rules))
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    servers = [_server(settings, app, lifespan=app is guard) for app in apps]
    token = f"?token={context.logins.token}" if settings.on_loopback and context.ways.only_token else ""

    def leave() -> None:
        for server in servers:
            server.leave()

    async def serve() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS, thread_name_prefix="console"))
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, leave)
        for cluster in clusters:
            cluster.start()
        serving = [
            asyncio.create_task(server.serve(sockets=[taken])) for server, taken in zip(servers, sockets, strict=True)
        ]
        while not all(server.started for server in servers) and not any(task.done() for task in serving):
            await asyncio.sleep(0.02)
        if all(server.started for server in servers):
            say(f"ready: {settings.address}{token}")
        await asyncio.gather(*serving)

    try:
        asyncio.run(serve())
    finally:
        workers.close()
        searches.pool.close()
        for cluster in clusters:
            cluster.close()


def _server(settings: ConsoleSettings, app: Guard, *, lifespan: bool) -> _Server:
    return _Server(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=3,
            timeout_keep_alive=75,  # longer than clients keep idle connections (5 s is common): they close first
            ws_max_size=4 << 20,
            ssl_certfile=settings.certificate,
            ssl_keyfile=settings.key,
            lifespan="on" if lifespan else "off",
        )
    )
