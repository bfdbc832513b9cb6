"""Questions about a little of a large cluster are small: metadata of 20,000 partitions is a matter of a look only."""

from __future__ import annotations

from console_world import Console, commit_from_the_beginning

from penstock.operate import groups as operate
from penstock.operate.session import Session


def test_one_group_is_looked_at_without_asking_for_every_topic(console: Console, name: str) -> None:
    """On a cluster of 20,000 partitions the metadata of all of them takes longer than the page may."""
    with console.client() as friend:
        for topic in (name, f"{name}-other"):
            friend.post(f"{console.local}/topics", json={"name": topic, "partitions": 1}).raise_for_status()
    commit_from_the_beginning(console, name, name)
    session = Session(console.broker.bootstrap, None, None)
    try:
        assert name in operate.all_groups(session)
        assert [row["offset"] for row in operate.lag_rows(session, [(name, 0)], {(name, 0): (0, None)})] == [0]
        assert f"{name}-other" not in session.client.metadata(()).topics
    finally:
        session.close()
