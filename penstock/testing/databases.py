"""Real PostgreSQL and MariaDB servers from the system's packages, each in a folder of its own, gone afterwards."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from penstock.testing.ports import free_port

START_SECONDS: Final = 120


class NotInstalled(Exception):
    """What to install."""


@contextmanager
def postgres_server() -> Iterator[str]:
    """Its address, postgresql://…"""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        raise NotInstalled("PostgreSQL (Debian: apt install postgresql)")
    bin_folder = found[-1].parent
    with _folder_of("postgres") as (folder, prefix):
        data = folder / "data"
        _quietly([*prefix, bin_folder / "initdb", "-D", data, "-A", "trust", "-U", "postgres", "--no-sync"])
        port = free_port()
        command = [*prefix, bin_folder / "postgres", "-D", data, "-p", str(port), "-k", folder, "-h", "127.0.0.1", "-F"]
        stop = [*prefix, bin_folder / "pg_ctl", "-D", data, "-m", "immediate", "stop"]
        dsn = f"postgresql://postgres@127.0.0.1:{port}/postgres"
        with _running(command, stop):
            import psycopg

            _wait_until_up(lambda: psycopg.connect(dsn, connect_timeout=5).close(), psycopg.OperationalError)
            yield dsn


@contextmanager
def mariadb_server() -> Iterator[str]:
    """Its address, mariadb://…, of an empty database."""
    install, server = shutil.which("mariadb-install-db"), shutil.which("mariadbd")
    if install is None or server is None:
        raise NotInstalled("MariaDB (Debian: apt install mariadb-server)")
    with _folder_of("mysql") as (folder, prefix):
        data, port = folder / "data", free_port()
        _quietly(
            [
                *prefix, install, "--no-defaults", f"--datadir={data}", "--auth-root-authentication-method=normal",
                "--skip-test-db", "--skip-name-resolve",
            ]
        )  # fmt: skip
        command = [
            *prefix, server, "--no-defaults", f"--datadir={data}", f"--socket={folder}/s", f"--port={port}",
            "--bind-address=127.0.0.1", f"--pid-file={folder}/pid", "--skip-name-resolve",
            "--innodb-flush-log-at-trx-commit=0",
        ]  # fmt: skip
        with _running(command, None):
            import pymysql

            def ready() -> None:
                with pymysql.connect(host="127.0.0.1", port=port, user="root") as connection:
                    connection.cursor().execute("CREATE DATABASE IF NOT EXISTS tests")

            _wait_until_up(ready, pymysql.err.OperationalError)
            yield f"mariadb://root@127.0.0.1:{port}/tests"


@contextmanager
def _folder_of(user: str) -> Iterator[tuple[Path, list[str]]]:
    """Databases refuse to run as root: then they get their own user, and a prefix that changes to it."""
    as_root = os.getuid() == 0
    if as_root and shutil.which("runuser") is None:
        raise NotInstalled("runuser: databases do not run as root")
    folder = Path(tempfile.mkdtemp(prefix="penstock-db-"))
    try:
        if as_root:
            shutil.chown(folder, user)
        yield folder, ["runuser", "-u", user, "--"] if as_root else []
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _quietly(command: list[Any]) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd="/")
    if done.returncode:
        raise RuntimeError(f"{command}: {done.stdout}{done.stderr}")


@contextmanager
def _running(command: list[Any], stop: list[Any] | None) -> Iterator[None]:
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/")
    try:
        yield
    finally:
        if stop is not None:
            subprocess.run(stop, check=False, capture_output=True, cwd="/")
        else:
            server.terminate()
        server.wait(START_SECONDS)


def _wait_until_up(attempt: Callable[[], object], trouble: type[Exception]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            attempt()
            return
        except trouble:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
