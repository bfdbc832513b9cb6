"""What the running console consists of, handed to REST and pages: clusters, logins, policy, audit log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from penstock.console.access.audit import Audit
from penstock.console.access.logins import Login, Logins
from penstock.console.access.ways_in import WaysIn
from penstock.console.cluster import Cluster
from penstock.console.data.viewer import Viewer
from penstock.console.policy import Policy
from penstock.operate.errors import not_found


@dataclass
class Context:
    clusters: Mapping[str, Cluster]
    """By name, the first one is shown first."""
    logins: Logins
    audit: Audit
    policy: Policy = field(default_factory=Policy)
    ways: WaysIn = field(default_factory=WaysIn)
    base_path: str = ""
    state_dir: Path = Path()

    def viewer(self, login: Login, cluster: str | None = None) -> Viewer:
        name = next(iter(self.clusters)) if cluster is None else cluster
        if name not in self.clusters:
            raise not_found("cluster", name, self.clusters)
        credentials = self.ways.credentials(login.user, name)
        return Viewer(login, self.clusters[name], self.policy, self.audit, credentials, self.ways.access.runner)
