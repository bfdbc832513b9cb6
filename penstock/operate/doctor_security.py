"""Weak spots of a cluster: what its listeners, settings, ACLs and quotas leave open, and what to do about it."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from penstock.operate import acls, admin, quotas
from penstock.operate.errors import UserError
from penstock.security.acl_model import WILDCARD, WILDCARD_PRINCIPAL, AclBinding, Operation, Permission, ResourceType

if TYPE_CHECKING:
    from penstock.operate.session import Session

Finding = tuple[str, str, str]
"""severity (ok, note, warning, problem), what was found, what to do."""

ANONYMOUS = "User:ANONYMOUS"
CHANGING = {
    Operation.ALL,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.ALTER_CONFIGS,
}
WEAK_TLS = {"SSLv3", "TLSv1", "TLSv1.1"}


def examine_security(session: Session) -> Iterator[dict[str, Any]]:
    """Every check in turn: its findings, or that all is in order."""
    settings = {
        node: {c.name: c.value or "" for c in admin.describe_configs(session, admin.BROKER_RESOURCE, str(node), node)}
        for node in sorted(admin.live_brokers(session))
    }
    for name, check in CHECKS.items():
        findings = list(dict.fromkeys(check(session, settings)))
        for severity, what, hint in findings or [("ok", "in order", "")]:
            yield {"check": name, "severity": severity, "finding": what, "hint": hint or None}


Settings = Mapping[int, Mapping[str, str]]


def listeners(session: Session, settings: Settings) -> Iterator[Finding]:
    for node, values in settings.items():
        protocols = dict(
            pair.strip().split(":", 1)
            for pair in values.get("listener.security.protocol.map", "").split(",")
            if ":" in pair
        )
        for text in values.get("listeners", "").split(","):
            name, _, address = text.strip().partition("://")
            protocol = protocols.get(name, name)
            host = address.rpartition(":")[0].strip("[]")
            if _is_loopback(host):
                continue
            where = f"broker {node}, listener {name}"
            if protocol == "PLAINTEXT":
                yield (
                    "warning",
                    f"{where}: whoever reaches it gets in without a name, and everything passes in clear",
                    "use SASL_SSL or SSL with ssl.client.auth=required, or listen on 127.0.0.1 only",
                )
            elif protocol == "SASL_PLAINTEXT":
                yield "warning", f"{where}: names are checked, but everything passes in clear", "use SASL_SSL"
            elif protocol == "SSL" and values.get("ssl.client.auth", "none") != "required":
                yield (
                    "note",
                    f"{where}: clients need no certificate, and are anonymous then",
                    "set ssl.client.auth=required, or use SASL_SSL",
                )
        weak = WEAK_TLS & set(values.get("ssl.enabled.protocols", "").split(","))
        if weak:
            yield "warning", f"broker {node} speaks {', '.join(sorted(weak))}", "ssl.enabled.protocols=TLSv1.2,TLSv1.3"
        if values.get("penstock.inter.broker.secret") == "accept":
            yield (
                "warning",
                f"broker {node}: whoever reaches the inter-broker listener can speak as a broker",
                "set penstock.inter.broker.secret=required as soon as all brokers are upgraded",
            )
        metrics = values.get("penstock.metrics.listener", "")
        if metrics and not _is_loopback(metrics.rpartition(":")[0].strip("[]")):
            yield "note", f"broker {node}: metrics are open to everybody who reaches {metrics}", "keep that port inside"


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False  # empty is everywhere, and a name may be anywhere


def authorization(session: Session, settings: Settings) -> Iterator[Finding]:
    with_acls = [node for node, values in settings.items() if values.get("authorizer.class.name")]
    if not with_acls:
        yield (
            "warning",
            "there are no ACLs: whoever gets in may read, change and delete everything",
            "set authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer and super.users",
        )
        return
    open_nodes = sorted(set(settings) - set(with_acls))
    if open_nodes:
        yield "problem", f"only some brokers have ACLs; open: {open_nodes}", "set authorizer.class.name on all of them"
    for node in with_acls:
        values = settings[node]
        if values.get("allow.everyone.if.no.acl.found") == "true":
            yield (
                "warning",
                f"broker {node}: what no ACL speaks about is open to all",
                "grant what is needed, then set allow.everyone.if.no.acl.found=false",
            )
        supers = {part.strip() for part in values.get("super.users", "").split(";") if part.strip()}
        if ANONYMOUS in supers:
            yield "problem", f"broker {node}: {ANONYMOUS} is a super user", "take it out of super.users"
        if not supers:
            yield "note", f"broker {node} has no super users", "name one in super.users, or nobody can repair the ACLs"


def rules(session: Session, settings: Settings) -> Iterator[Finding]:
    if not any(values.get("authorizer.class.name") for values in settings.values()):
        return
    try:
        found = acls.listed(session)
    except UserError as error:
        yield "note", f"the ACLs cannot be read: {error.message}", "ask as somebody who may describe the cluster"
        return
    for binding in found:
        if binding.permission == Permission.ALLOW and binding.host == WILDCARD and _is_wide(binding):
            yield "warning", f"{binding}", "name who needs it, and what"


def _is_wide(binding: AclBinding) -> bool:
    """Everybody, or whoever has no name, may change something; or somebody may do all with everything."""
    if binding.principal in (WILDCARD_PRINCIPAL, ANONYMOUS):
        return binding.operation in CHANGING or binding.name == WILDCARD
    return (
        binding.operation == Operation.ALL
        and binding.name == WILDCARD
        and binding.resource_type in (ResourceType.TOPIC, ResourceType.USER)
    )


def limits(session: Session, settings: Settings) -> Iterator[Finding]:
    try:
        found = quotas.listed(session)
    except UserError as error:
        yield "note", f"the quotas cannot be read: {error.message}", ""
        return
    defaults = [entity for entity, _ in found if None in entity.values()]
    if not defaults:
        yield (
            "note",
            "there is no default quota: one client may take all that the brokers can give",
            "for example: penstock quota set 'user:*' produce=50000000 fetch=100000000",
        )


def store(session: Session, settings: Settings) -> Iterator[Finding]:
    for node, values in settings.items():
        if values.get("zookeeper.connect") and values.get("zookeeper.set.acl", "false") != "true":
            yield (
                "warning",
                f"broker {node}: whoever reaches ZooKeeper can change everything in it, ACLs and passwords included",
                "let ZooKeeper authenticate its clients and set zookeeper.set.acl=true",
            )


CHECKS: dict[str, Callable[[Session, Settings], Iterator[Finding]]] = {
    "listeners": listeners,
    "authorization": authorization,
    "rules": rules,
    "limits": limits,
    "store": store,
}
