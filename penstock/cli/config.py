"""`penstock config`: settings of topics, brokers and groups, where each value comes from, and changing them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.typed import command, new_app
from penstock.operate import admin
from penstock.operate.configs import DEFAULT, check_names, config_row, describe
from penstock.operate.errors import not_found, usage_error

if TYPE_CHECKING:
    from penstock.cli.session import Session

app = new_app("Read and change settings of topics, brokers and groups.")

Resource = Annotated[
    str,
    typer.Argument(
        metavar="RESOURCE", help="topic:NAME, broker:ID, broker (all of them) or group:NAME.", show_default=False
    ),
]


def parse_resource(session: Session, text: str) -> tuple[int, str]:
    kind, _, name = text.partition(":")
    if kind == "topic" and name:
        return admin.TOPIC_RESOURCE, admin.topic(session, name).name
    if kind == "group" and name:
        return admin.GROUP_RESOURCE, name
    if kind == "broker":
        brokers = admin.cluster(session).brokers
        if name and (not name.isdigit() or int(name) not in brokers):
            raise not_found("broker", name, [str(node) for node in brokers])
        return admin.BROKER_RESOURCE, name
    raise usage_error(f"{text!r} is no resource", "write topic:NAME, broker:ID, broker or group:NAME")


@command(app)
def get(
    session: Session,
    resource: Resource,
    keys: Annotated[list[str] | None, typer.Argument(metavar="[KEY…]", help="Only these.", show_default=False)] = None,
    all_: Annotated[bool, typer.Option("--all", "-a", help="Also those at their defaults.")] = False,
) -> None:
    """Show settings: those that differ from the default, all, or the named ones."""
    kind, name = parse_resource(session, resource)
    configs = {c.name: c for c in describe(session, kind, name)}
    for key in keys or []:
        if key not in configs:
            raise not_found("setting", key, configs)
    rows = [
        config_row(c)
        for c in sorted(configs.values(), key=lambda c: c.name)
        if (c.name in keys if keys else all_ or c.config_source != DEFAULT)
    ]
    session.output.rows(rows, ["key", "value", "source"], empty=_nothing(resource, all_))


def _nothing(resource: str, all_: bool) -> str:
    if resource == "broker":
        return "nothing is set for all brokers; `penstock config get broker:ID --all` shows what holds for one"
    return f"{resource} has no settings of its own" if all_ else "everything is at its default; --all shows it"


@command(app, "set")
def set_(
    session: Session,
    resource: Resource,
    pairs: Annotated[list[str], typer.Argument(metavar="KEY=VALUE…", show_default=False)],
) -> None:
    """Change settings; KEY+=VALUE and KEY-=VALUE change lists."""
    kind, name = parse_resource(session, resource)
    changes: list[tuple[str, int, str | None]] = []
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise usage_error(f"{pair!r} is not KEY=VALUE", "for example retention.ms=3600000")
        operation = {"+": 2, "-": 3}.get(key[-1:], 0)
        changes.append((key[:-1] if operation else key, operation, value))
    check_names(session, kind, name, [key for key, _, _ in changes])
    admin.alter_configs(session, kind, name, changes)
    session.output.result({"resource": resource, "changed": [c[0] for c in changes]}, f"{resource} changed")


@command(app)
def delete(
    session: Session, resource: Resource, keys: Annotated[list[str], typer.Argument(metavar="KEY…", show_default=False)]
) -> None:
    """Take settings back to their defaults."""
    kind, name = parse_resource(session, resource)
    check_names(session, kind, name, keys)
    admin.alter_configs(session, kind, name, [(key, 1, None) for key in keys])
    session.output.result(
        {"resource": resource, "deleted": keys}, f"{resource} is back at the default of {', '.join(keys)}"
    )
