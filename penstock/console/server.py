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

from penstock.console import policy, workers
from penstock.console.access import login_page
from penstock.console.access.audit import Audit
from penstock.console.access.guard import TOKEN_USER, Guard, Rules
from penstock.console.access.logins import Logins
from penstock.console.access.users import UserFile
from penstock.console.cluster import Cluster
from penstock.console.connect import app as connect
from penstock.console.connect.gate import ConnectGate
from penstock.console.context import Context
from penstock.console.rest.app import create_app
from penstock.console.settings import ConsoleSettings
from penstock.operate.errors import UserError


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
    users = UserFile(settings.users) if settings.users is not None else None
    context = Context(
        clusters={cluster.name: cluster for cluster in clusters},
        logins=Logins(
            settings.token or secrets.token_urlsafe(24),
            is_current=lambda user: users is None or user is TOKEN_USER or users.is_current(user),
        ),
        audit=Audit(settings.state_dir / "audit.jsonl"),
        policy=policy.load(settings.policy),
        users=users,
        base_path=settings.base_path,
        state_dir=settings.state_dir,
    )
    app = create_app(context)
    app.include_router(login_page.router)
    if with_pages:
        _add_pages(app, context)
    guard = Guard(app, context.logins, Rules(settings.allowed_hosts, settings.base_path, settings.secure))
    app.state.guard = guard
    return guard, context


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
        apps.append(ConnectGate(connect.create_app(context), context.logins, rules))
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    servers = [_server(settings, app, lifespan=app is guard) for app in apps]
    token = f"?token={context.logins.token}" if settings.on_loopback and context.users is None else ""

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
            ws_max_size=4 << 20,
            ssl_certfile=settings.certificate,
            ssl_keyfile=settings.key,
            lifespan="on" if lifespan else "off",
        )
    )
