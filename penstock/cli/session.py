"""What every command that talks to a cluster is handed: the cluster, and its standard output."""

from __future__ import annotations

from penstock.cli.output import Output
from penstock.operate import session


class Session(session.Session):
    """One command's view of one cluster."""

    client_id = "penstock-cli"

    def __init__(
        self,
        bootstrap: str | None,
        profile: str | None,
        properties: list[str] | None,
        as_json: bool = False,
        patience_seconds: float = 10.0,
    ) -> None:
        super().__init__(bootstrap, profile, properties, patience_seconds)
        self.output = Output(as_json)

    def note(self, line: str) -> None:
        self.output.note(line)
