"""Three real brokers on a real ZooKeeper: one comes back without its disk, one misses a deletion."""

from __future__ import annotations

import pytest
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import NewTopic

from penstock.cluster.local import LocalClusterError
from penstock.log.log_directory import accept_loss
from tests.cluster.three_brokers import Cluster, Sender, cluster, read_all

__all__ = ["cluster"]
pytestmark = pytest.mark.cluster


def test_nobody_is_cut_to_the_empty_disk_of_the_last_replica_in_sync(cluster: Cluster) -> None:
    cluster.create("last", min_isr=1)
    elsewhere = NewTopic("elsewhere", 1, replica_assignment=[[2, 3]])
    cluster.admin.create_topics([elsewhere])["elsewhere"].result(30)
    sender = Sender(cluster, "last")
    sender.send(300)
    sender.flush()
    cluster.until_replicas_agree("last")
    everywhere = set(sender.acknowledged)
    cluster.kill(2)
    cluster.kill(3)
    cluster.until(lambda: cluster.isr("last") == [1], "broker 1 is alone in sync")
    sender.send(100)
    sender.flush()
    cluster.kill(1)
    disk = cluster.local.folder("broker-1") / "data"
    disk.rename(disk.with_name("unmounted"))
    cluster.restart_only(2)
    cluster.restart_only(3)
    with pytest.raises(LocalClusterError, match="accept-loss"):
        cluster.restart_only(1)
    assert not disk.exists()
    accept_loss(disk)
    cluster.restart_only(1)
    cluster.until(lambda: cluster.leader("last") == -1, "nobody leads")

    def is_led() -> bool:
        """Until broker 1 has said that its replica is lost, it counts as the leader, and no election is needed."""
        cluster.admin.elect_leaders(ElectionType.UNCLEAN, [TopicPartition("last", 0)]).result(30)
        return cluster.leader("last") in (2, 3)

    cluster.until(is_led, "one of those that still have data leads")
    cluster.until_replicas_agree("last")
    assert {value for _, value in read_all(cluster, "last")} >= everywhere, "what the others had is still there"


def test_a_dead_replica_does_not_block_a_name_and_drops_the_old_log_when_it_is_back(cluster: Cluster) -> None:
    cluster.create("again")
    folder = cluster.local.folder("broker-3") / "data" / "again-0"
    cluster.until(folder.is_dir, "broker 3 has made its replica")
    cluster.kill(3)
    cluster.until(lambda: 3 not in cluster.admin.list_topics(timeout=20).brokers, "broker 3 is missed")
    cluster.admin.delete_topics(["again"])["again"].result(60)
    cluster.admin.create_topics([NewTopic("again", 1, 2)])["again"].result(60)
    sender = Sender(cluster, "again")
    sender.send(10)
    sender.flush()
    cluster.restart_only(3)
    cluster.until(lambda: not folder.exists(), "broker 3 has heard of the deletion")
    assert not list(folder.parent.glob("again-0*-stray"))
    assert len(read_all(cluster, "again")) == 10
