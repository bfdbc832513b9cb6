"""What a broker is about to run out of, as it tells in its metrics: the life of its certificates, open files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.operate import admin
from penstock.operate.doctor_records import Finding, metrics_of

if TYPE_CHECKING:
    from penstock.operate.session import Session

DAY_SECONDS = 24 * 3600
WARNED_BEFORE_SECONDS = 14 * DAY_SECONDS
FILES_WARNED_SHARE = 0.8
RENEW = "put a renewed one into the files of ssl.keystore.location; brokers take it without a restart"


def certificates(session: Session) -> Iterator[Finding]:
    for node, address in sorted(admin.cluster(session).brokers.items()):
        for name, listener, left_s in metrics_of(session, node, address.host):
            if name != "penstock_certificate_expires_seconds":
                continue
            where = f"broker {node}, listener {listener}"
            if left_s <= 0:
                yield "problem", f"{where}: its certificate has ended, clients refuse it", RENEW
            elif left_s <= WARNED_BEFORE_SECONDS:
                yield "warning", f"{where}: its certificate ends in {left_s / DAY_SECONDS:.0f} days", RENEW


def open_files(session: Session) -> Iterator[Finding]:
    for node, address in sorted(admin.cluster(session).brokers.items()):
        told = {name: value for name, _, value in metrics_of(session, node, address.host)}
        used, limit = told.get("penstock_open_files", 0), told.get("penstock_open_files_limit", 0)
        if used > FILES_WARNED_SHARE * limit:
            yield (
                "warning",
                f"broker {node} has {used:.0f} files and connections open, its limit is {limit:.0f}",
                "raise it (LimitNOFILE= of its unit, or ulimit -Hn) and restart the broker",
            )
