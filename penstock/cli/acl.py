"""`penstock acl`: who may do what; list, grant, take away, and explain a decision."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.typed import command, new_app
from penstock.operate.errors import usage_error

if TYPE_CHECKING:
    from penstock.cli.session import Session
    from penstock.security.acl_model import AclFilter

app = new_app("Who may do what: list, grant, take away and explain access.")

Who = Annotated[str, typer.Argument(metavar="WHO", help="User:anna, or just anna; '*' for all.", show_default=False)]
What = Annotated[str, typer.Argument(metavar="OPERATION", help="read, write, describe, all, …", show_default=False)]
Which = Annotated[
    str,
    typer.Argument(metavar="RESOURCE", help="topic:NAME, topic:PREFIX*, topic:*, group:…, txn:…, cluster.",
                   show_default=False),
]  # fmt: skip
MaybeWho = Annotated[str | None, typer.Option("--principal", metavar="WHO", show_default=False)]
MaybeWhich = Annotated[str | None, typer.Option("--resource", metavar="RESOURCE", show_default=False)]
Host = Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Only from there.")]


def _filter(principal: str | None, resource: str | None) -> AclFilter:
    from penstock.operate import acls
    from penstock.security.acl_model import AclFilter

    wanted = AclFilter(principal=None if principal is None else acls.parse_principal(principal))
    if resource is not None:
        named = acls.parse_resource(resource)
        wanted = replace(wanted, resource_type=named.kind, name=named.name, pattern_type=named.pattern)
    return wanted


@command(app, "list")
def list_(session: Session, principal: MaybeWho = None, resource: MaybeWhich = None) -> None:
    """All ACLs, or those of a principal, or exactly of a resource."""
    from penstock.operate import acls

    found = acls.listed(session, _filter(principal, resource))
    columns = ["principal", "permission", "operation", "resource", "host"]
    session.output.rows(map(acls.row, found), columns, empty="there are no such ACLs")


@command(app, "set")
def set_(
    session: Session,
    who: Who,
    operation: What,
    resource: Which,
    deny: Annotated[bool, typer.Option("--deny", help="Forbid it, whatever else allows it.")] = False,
    host: Host = "*",
) -> None:
    """Allow (or --deny) an operation."""
    from penstock.operate import acls
    from penstock.security.acl_model import AclBinding, Permission

    named = acls.parse_resource(resource)
    binding = AclBinding(
        named.kind,
        named.name,
        named.pattern,
        acls.parse_principal(who),
        host,
        acls.parse_operation(operation, named.kind),
        Permission.DENY if deny else Permission.ALLOW,
    )
    acls.create(session, [binding])
    session.output.result(acls.row(binding), str(binding))


@command(app)
def delete(
    session: Session,
    principal: MaybeWho = None,
    resource: MaybeWhich = None,
    operation: Annotated[str | None, typer.Option("--operation", metavar="OPERATION", show_default=False)] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete the ACLs of a principal, of a resource, or of both."""
    from penstock.operate import acls
    from penstock.security.acl_model import Operation

    if principal is None and resource is None:
        raise usage_error("whose ACLs?", "name --principal, --resource or both")
    wanted = _filter(principal, resource)
    if operation is not None:
        try:
            wanted = replace(wanted, operation=Operation(Operation.parse(operation)))
        except ValueError as error:
            raise usage_error(str(error)) from None
    found = acls.listed(session, wanted)
    if found and not yes:
        for binding in found:
            session.output.note(str(binding))
        typer.confirm(f"Delete these {len(found)} ACLs?", abort=True)
    count = acls.delete(session, [wanted]) if found else 0
    session.output.result({"deleted": count}, f"{count} ACLs deleted")


@command(app)
def explain(session: Session, who: Who, operation: What, resource: Which, host: Host = "127.0.0.1") -> None:
    """Say whether somebody may do something, and by which rule."""
    from penstock.operate import acls
    from penstock.security.acl_model import PatternType

    named = acls.parse_resource(resource)
    if named.pattern is PatternType.PREFIXED or named.name == "*":
        raise usage_error("one resource, not a pattern", "for example topic:orders")
    principal = acls.parse_principal(who)
    wanted = acls.parse_operation(operation, named.kind)
    decision = acls.rules(session).decide(principal, host, wanted, named.kind, named.name)
    why = acls.explained(decision)
    answer = "yes" if decision.allowed else "no"
    row = {"allowed": decision.allowed, "why": why, "rule": acls.row(decision.by) if decision.by is not None else None}
    session.output.result(row, f"{answer}, {why}")
