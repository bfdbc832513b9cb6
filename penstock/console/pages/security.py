"""Security: users that log in with passwords, ACLs, quotas; or why this cluster has none of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from nicegui import ui

from penstock.console.data import security
from penstock.console.data.paging import Row
from penstock.console.page import Here, Page
from penstock.console.widgets import numbers
from penstock.console.widgets.dialogs import attempt, buttons, confirm_typed, dialog
from penstock.console.widgets.pieces import empty_state, panel, primary, title_row
from penstock.console.widgets.table import Column, ServerTable, fixed

Refresh = Callable[[], Awaitable[None]]
TABS = {"acls": "ACLs", "users": "Users", "quotas": "Quotas"}
OPERATIONS = [
    "read",
    "write",
    "create",
    "delete",
    "alter",
    "describe",
    "cluster-action",
    "describe-configs",
    "alter-configs",
    "idempotent-write",
    "all",
]
LIMITS = {
    "produce": "Bytes written per second",
    "fetch": "Bytes read per second",
    "request": "Percent of one processor",
    "topics": "Partitions created or deleted per second",
    "connections": "New connections per second (of an address)",
}


async def build(here: Here) -> None:
    found = await here.viewer.ask(security.security)
    with title_row("Security", "who may log in, who may do what, and how much"):
        pass
    chosen = here.arguments.get("tab", "acls")
    with ui.tabs(value=chosen if chosen in TABS else "acls").props("align=left no-caps inline-label") as tabs:
        for key, label in TABS.items():
            ui.tab(key, label)
    tables: dict[str, ServerTable] = {}

    async def refresh() -> None:
        now = await here.viewer.ask(security.security)
        for key, table in tables.items():
            table.change_fetch(fixed(_with_id(now[key]), name="id"))
            await table.refresh()

    makers: dict[str, Callable[[], ServerTable]] = {
        "acls": lambda: _acls(here, refresh),
        "users": lambda: _users(here, refresh),
        "quotas": lambda: _quotas(here, refresh),
    }
    with ui.tab_panels(tabs, value=tabs.value, animated=False).style("width: 100%"):
        for key, make in makers.items():
            with ui.tab_panel(key):
                if key in found["missing"]:
                    with panel():
                        empty_state("lock_open", f"{TABS[key]} are not available", found["missing"][key])
                else:
                    tables[key] = make()
    await refresh()


def _with_id(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What identifies a row is all of it; a search looks at all of it, too."""
    return [{**row, "id": " ".join(str(value) for value in row.values())} for row in rows]


def _toolbar(words: str, label: str, open_dialog: Callable[[], None]) -> None:
    with ui.element("div").classes("pk-row").style("padding: 14px 20px 0"):
        ui.label(words).classes("pk-sub pk-grow")
        primary(label, open_dialog, icon="add")


def _acls(here: Here, refresh: Refresh) -> ServerTable:
    with panel(flush=True):
        _toolbar("A rule that denies wins over all that allow. Click a rule to delete it.", "New rule",
                 lambda: _acl_dialog(here, refresh))  # fmt: skip
        return ServerTable(
            [
                Column("principal", "Who"),
                Column("permission", "May", tone=lambda row: "ok" if row["permission"] == "allow" else "problem"),
                Column("operation", "Do what"),
                Column("resource", "With what"),
                Column("host", "From", text=lambda row: "anywhere" if row["host"] == "*" else row["host"], wide=True),
            ],
            fixed([], name="id"),
            key="id",
            sort="principal",
            search="Search rules",
            on_row=lambda row: _delete_acl(here, row, refresh),
            empty=("policy", "No rules", "Without rules only super users may do anything, unless everybody may."),
        )


def _acl_dialog(here: Here, refresh: Refresh) -> None:
    with dialog("New rule") as made:
        who = ui.input("Who").props('outlined dense autofocus autocomplete=off hint="User:anna, or just anna"')
        may = ui.select({"allow": "may", "deny": "may not"}, value="allow", label="May").props("outlined dense")
        what = ui.select(OPERATIONS, value="read", label="Do what").props("outlined dense")
        which = ui.input("With what").props(
            'outlined dense autocomplete=off hint="topic:orders, topic:ord*, topic:*, group:billing, txn:…, cluster"'
        )
        host = ui.input("From", value="*").props('outlined dense autocomplete=off hint="an address; * for anywhere"')

        async def create() -> bool:
            row = {
                "principal": (who.value or "").strip(),
                "permission": may.value,
                "operation": what.value,
                "resource": (which.value or "").strip(),
                "host": (host.value or "").strip(),
            }
            good = await attempt(lambda: here.viewer.ask(security.create_acl, row), "the rule holds")
            if good:
                await refresh()
            return good

        buttons(made, "Create", create)


def _delete_acl(here: Here, row: Row, refresh: Refresh) -> None:
    rule = {key: row[key] for key in ("principal", "permission", "operation", "resource")}
    rule["host"] = "*" if row["host"] == "anywhere" else row["host"]

    async def work() -> bool:
        good = await attempt(lambda: here.viewer.ask(security.delete_acl, rule), "the rule is gone")
        if good:
            await refresh()
        return good

    words = f"{rule['principal']} {'may' if rule['permission'] == 'allow' else 'may not'} {rule['operation']}"
    confirm_typed("Delete this rule?", f"{words} {rule['resource']}", rule["principal"], "Delete", work)


def _users(here: Here, refresh: Refresh) -> ServerTable:
    with panel(flush=True):
        _toolbar("Passwords are never shown; a new one replaces the old. Click a user to delete it.", "New user",
                 lambda: _user_dialog(here, refresh))  # fmt: skip
        return ServerTable(
            [
                Column("name", "User"),
                Column("mechanisms", "Logs in by"),
                Column("iterations", "Rounds", text=lambda row: numbers.count(row["iterations"]), right=True),
            ],
            fixed([], name="id"),
            key="name",
            sort="name",
            search="Search users",
            on_row=lambda row: _delete_user(here, row, refresh),
            empty=("person_add", "No users", "“New user” makes one; a listener with SASL lets it log in."),
        )


def _user_dialog(here: Here, refresh: Refresh) -> None:
    with dialog("New user, or a new password") as made:
        name = ui.input("Name").props("outlined dense autofocus autocomplete=off")
        password = ui.input("Password", password=True).props("outlined dense autocomplete=new-password")
        mechanism = ui.select(["SCRAM-SHA-512", "SCRAM-SHA-256"], value="SCRAM-SHA-512", label="Logs in by").props(
            "outlined dense"
        )

        async def save() -> bool:
            wanted = (name.value or "").strip()
            good = await attempt(
                lambda: here.viewer.ask(
                    security.set_password, wanted, password.value or "", mechanism=str(mechanism.value)
                ),
                f"{wanted} may log in",
            )
            if good:
                await refresh()
            return good

        buttons(made, "Save", save)


def _delete_user(here: Here, row: Row, refresh: Refresh) -> None:
    name = str(row["name"])

    async def work() -> bool:
        good = await attempt(lambda: here.viewer.ask(security.delete_user, name), f"{name} is gone")
        if good:
            await refresh()
        return good

    confirm_typed(f"Delete {name}?", "Clients that are logged in stay so for now.", name, "Delete", work)


def _quotas(here: Here, refresh: Refresh) -> ServerTable:
    with panel(flush=True):
        _toolbar("A client that exceeds its limit is slowed down. Click a limit to change it.", "New limit",
                 lambda: _quota_dialog(here, refresh))  # fmt: skip
        return ServerTable(
            [
                Column("whose", "Whose"),
                Column("quota", "What"),
                Column("limit", "Limit", text=lambda row: numbers.count(row["limit"]), right=True),
                Column("unit", "Unit", wide=True),
            ],
            fixed([], name="id"),
            key="id",
            sort="whose",
            search="Search limits",
            on_row=lambda row: _quota_dialog(here, refresh, row),
            empty=("speed", "No limits", "Every client takes what it can get."),
        )


def _quota_dialog(here: Here, refresh: Refresh, row: Row | None = None) -> None:
    with dialog("New limit" if row is None else "Change the limit") as made:
        whose = ui.input("Whose", value=row["whose"] if row else "")
        whose.props('outlined dense autofocus autocomplete=off hint="user:anna, client:app, ip:10.0.0.1, user:*"')
        chosen = LIMITS if row is None else {row["quota"]: row["quota"]}
        what = ui.select(chosen, value=next(iter(chosen)), label="What").props("outlined dense")
        limit = ui.number("Limit", min=0).props('outlined dense hint="empty takes the limit away"')

        async def save() -> bool:
            wanted = None if limit.value is None else float(limit.value)
            good = await attempt(
                lambda: here.viewer.ask(security.set_quota, (whose.value or "").strip(), str(what.value), wanted),
                "the limit is changed",
            )
            if good:
                await refresh()
            return good

        buttons(made, "Save", save)


PAGE = Page("/security", "Security", build, label="Security", icon="shield", role="admin")
