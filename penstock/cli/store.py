"""`penstock store migrate`: a single node's tree moves to ZooKeeper; the node goes on as a cluster's first broker."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import Config, Set, parse_overrides
from penstock.cli.typed import local_command, new_app
from penstock.operate.errors import ExitCode, UserError, usage_error

if TYPE_CHECKING:
    from penstock.cli.output import Output

app = new_app("The coordination store: move it to ZooKeeper, renew the brokers' secret.")


@app.callback()
def store() -> None:
    """The coordination store: move it to ZooKeeper, renew the brokers' secret."""


@local_command(app)
def migrate(
    output: Output,
    to: Annotated[str, typer.Option("--to", help="Where to; there is `zookeeper`.")],
    connect: Annotated[str, typer.Option("--connect", metavar="HOST:PORT[/CHROOT]", help="The ZooKeeper ensemble.")],
    config: Config = None,
    set_: Set = None,
    keep_source: Annotated[bool, typer.Option("--keep-source", help="Leave the old store in place.")] = False,
) -> None:
    """Copy topics, ids, settings, producer ids and the cluster id. The broker must be stopped; its data stays."""
    from penstock.base.settings import Settings, SettingsError
    from penstock.store.interface import ConnectionLost
    from penstock.store.migrate import MIGRATED_SUFFIX, MigrationRefused, migrate_to_zookeeper

    if to != "zookeeper":
        raise usage_error(f"--to {to!r} is unknown", "there is zookeeper")
    try:
        embedded = Settings.load(config, parse_overrides(set_))
        target = Settings.load(config, {**parse_overrides(set_), "zookeeper.connect": connect})
    except SettingsError as error:
        raise UserError(str(error), code=ExitCode.USAGE) from error
    path = Path(embedded["penstock.store.path"] or Path(embedded.log_dirs[0]) / "penstock.db")
    if not path.is_file():
        moved_before = path.with_name(path.name + MIGRATED_SUFFIX)
        hint = "name the broker's settings with --config FILE or --set log.dirs=FOLDER"
        if moved_before.exists():
            hint = f"it was moved already; {moved_before} is what it was"
        raise UserError(f"there is no store {path}", hint, ExitCode.NOT_FOUND)
    logging.getLogger("penstock.store.kazoo").setLevel(logging.CRITICAL)  # it tells of every try; we tell once
    try:
        with stopped(embedded.log_dirs):
            moved = asyncio.run(migrate_to_zookeeper(path, target, keep_source=keep_source))
    except MigrationRefused as error:
        raise UserError(str(error), code=ExitCode.REFUSED) from error
    except ConnectionLost as error:
        hint = "is it running? `penstock zookeeper` starts one here"
        raise UserError(f"no ZooKeeper answers at {connect}", hint, ExitCode.UNREACHABLE) from error
    output.result(
        {"nodes": moved.nodes, "topics": moved.topics, "left_behind": str(moved.left_behind)},
        f"{moved.topics} topics moved; start the broker with --set zookeeper.connect={connect}",
    )


@local_command(app, "rotate-secret")
def rotate_secret(output: Output, config: Config = None, set_: Set = None) -> None:
    """Give the brokers of a cluster a new secret to know each other by; the last one stays valid until the next."""
    from penstock.base.settings import Settings, SettingsError
    from penstock.security.bootstrap import open_store
    from penstock.security.broker_secret import rotate_secret as rotate
    from penstock.store.interface import StoreError

    try:
        settings = Settings.load(config, parse_overrides(set_))
    except SettingsError as error:
        raise UserError(str(error), code=ExitCode.USAGE) from error
    if settings.embedded:
        raise usage_error(
            "a node alone has no brokers to know", "name a cluster with --set zookeeper.connect=HOST:PORT"
        )

    async def work() -> None:
        store = open_store(settings)
        await store.start()
        try:
            await rotate(store)
        finally:
            await store.close()

    try:
        asyncio.run(work())
    except StoreError as error:
        raise UserError(f"the store cannot be written: {error}", code=ExitCode.UNREACHABLE) from error
    output.result({"rotated": True}, "brokers use the new secret from now on")


@contextlib.contextmanager
def stopped(log_dirs: Iterable[str]) -> Iterator[None]:
    """Holds the locks that a broker holds while it runs: what it would write meanwhile would be lost."""
    from penstock.log.log_directory import LOCK_FILE

    with contextlib.ExitStack() as held:
        for folder in log_dirs:
            lock = Path(folder) / LOCK_FILE
            if not lock.exists():
                continue
            stream = held.enter_context(lock.open("r+"))
            try:
                fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UserError(f"a broker runs on {folder}", "stop it first", ExitCode.REFUSED) from None
        yield
