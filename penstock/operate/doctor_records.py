"""What brokers and the metadata store disagree about: topics that cannot be read, replicas that are missing, folders
that nobody knows. Kafka's protocol does not tell all of it; brokers say the rest in their metrics."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.operate import admin
from penstock.protocol import messages

if TYPE_CHECKING:
    from penstock.operate.session import Session

Finding = tuple[str, str, str]
METRICS_SECONDS = 5.0
MEND = "mend its node in the metadata store; the brokers' logs say what is wrong with it"


def records(session: Session) -> Iterator[Finding]:
    view = admin.cluster(session)
    named: set[str] = set()
    for node, address in sorted(view.brokers.items()):
        for name, label, value in metrics_of(session, node, address.host):
            if name == "penstock_unreadable_topics" and label not in named:
                named.add(label)
                yield "problem", f"topic {label} cannot be read and cannot change", MEND
            elif name == "penstock_offline_replicas" and value:
                lost = f"broker {node}: {value:.0f} replicas are in none of its log directories in use"
                yield "problem", lost, "bring the disk back, or give them up with `penstock log accept-loss`"
            elif name == "penstock_stray_replicas" and value:
                kept = f"broker {node}: {value:.0f} replica folders belong to no topic of this cluster"
                yield "warning", kept, "look at the folders *-stray; penstock.stray.retention.ms says when they go"
    api = messages.api("describe_log_dirs")
    for node, answer in admin.on_every_broker(session, "describe_log_dirs", api.Request(topics=None)).items():
        there = {topic.name for folder in answer.results for topic in folder.topics}
        for topic in sorted(there - set(view.topics) - named):
            yield "problem", f"broker {node} has a replica of {topic}, which the cluster does not know", MEND


def metrics_of(session: Session, node: int, host: str) -> Iterator[tuple[str, str, float]]:
    """(name, value of the first label, value) of each sample; nothing where no metrics are served."""
    configs = admin.describe_configs(session, admin.BROKER_RESOURCE, str(node), node)
    listener = next((c.value for c in configs if c.name == "penstock.metrics.listener"), None)
    if not listener:
        return
    told, _, port = listener.removeprefix("http://").rstrip("/").rpartition(":")
    place = told if told.strip("[]") not in ("", "0.0.0.0", "::") else host
    try:
        with urllib.request.urlopen(f"http://{place}:{port}/metrics", timeout=METRICS_SECONDS) as answer:
            lines = answer.read().decode().splitlines()
    except OSError:
        return  # metrics may be for others only: the broker itself has answered before
    for line in lines:
        if not line.startswith("#"):
            series, _, value = line.rpartition(" ")
            name, _, labels = series.partition("{")
            yield name, labels.partition('="')[2].partition('"')[0], float(value)
