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


def bind(settings: ConsoleSettings) -> socket.socket:
    """The listening socket, taken before anything else is done: a taken port is told at once."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
    except OSError as error:
        listening.close()
        raise UserError(
            f"the console cannot listen at {settings.host}:{settings.port}: {error.strerror}",
            "take another port with --port",
        ) from error
    return listening


def run(settings: ConsoleSettings, clusters: list[Cluster], say: Callable[[str], None]) -> None:
    """Serve until told to stop. Says `ready: ADDRESS` (on loopback with the token) once it answers."""
    listening = bind(settings)
    guard, context = create(settings, clusters)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    config = uvicorn.Config(
        guard,
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=3,
        ws_max_size=4 << 20,
        ssl_certfile=settings.certificate,
        ssl_keyfile=settings.key,
        lifespan="on",
    )
    server = _Server(config)
    token = f"?token={context.logins.token}" if settings.on_loopback and context.users is None else ""

    async def serve() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS, thread_name_prefix="console"))
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, server.leave)
        for cluster in clusters:
            cluster.start()
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        while not server.started and not serving.done():
            await asyncio.sleep(0.02)
        if server.started:
            say(f"ready: {settings.address}{token}")
        await serving

    try:
        asyncio.run(serve())
    finally:
        workers.close()
        for cluster in clusters:
            cluster.close()
