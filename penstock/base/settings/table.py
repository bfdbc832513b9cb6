"""The whole table: every setting that is known, by name."""

from __future__ import annotations

from typing import Any

from penstock.base.settings.table_broker import BROKER
from penstock.base.settings.table_elsewhere import ELSEWHERE
from penstock.base.settings.table_groups import GROUPS
from penstock.base.settings.table_log import LOG
from penstock.base.settings.table_own import OWN
from penstock.base.settings.table_replication import REPLICATION
from penstock.base.settings.table_security import SECURITY
from penstock.base.settings.table_topics import TOPICS
from penstock.base.settings.table_transactions import TRANSACTIONS
from penstock.base.settings.table_zookeeper import ZOOKEEPER

__all__ = ["BROKER_SETTINGS", "EMBEDDED_DEFAULTS", "THEMES", "TOPIC_SETTINGS"]

THEMES = {
    "Penstock's own": OWN,
    "Broker: listeners, connections, requests": BROKER,
    "Log": LOG,
    "Replication and cluster": REPLICATION,
    "Groups and offsets": GROUPS,
    "Transactions": TRANSACTIONS,
    "ZooKeeper": ZOOKEEPER,
    "Security": SECURITY,
    "Settings of parts that Penstock does not have": ELSEWHERE,
}
BROKER_SETTINGS = {setting.name: setting for theme in THEMES.values() for setting in theme}
TOPIC_SETTINGS = {setting.name: setting for setting in TOPICS}

# One node has no second replica: without zookeeper.connect these take the place of Kafka's defaults.
EMBEDDED_DEFAULTS: dict[str, Any] = {
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "transaction.two.phase.commit.enable": True,
}
