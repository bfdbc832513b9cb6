"""REST of topics: list, look, create, configure, grow, empty, delete."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path

from penstock.console.data import topics
from penstock.console.rest import models
from penstock.console.rest.app import Asker, PageQuery, new_router

router = new_router("topics")

Topic = Annotated[str, Path(min_length=1, max_length=249)]


@router.get("/topics")
def list_topics(viewer: Asker, query: PageQuery, internal: bool = False) -> dict[str, Any]:
    return topics.topic_page(viewer, query, internal=internal).as_json()


@router.post("/topics", status_code=201)
def create_topic(viewer: Asker, body: models.NewTopic) -> dict[str, Any]:
    return topics.create_topic(viewer, body.name, body.partitions, body.replicas, body.configs)


@router.get("/topics/{topic}")
def get_topic(viewer: Asker, topic: Topic) -> dict[str, Any]:
    return topics.topic(viewer, topic)


@router.delete("/topics/{topic}", status_code=204)
def delete_topic(viewer: Asker, topic: Topic) -> None:
    topics.delete_topic(viewer, topic)


@router.get("/topics/{topic}/configs")
def topic_configs(viewer: Asker, topic: Topic) -> list[dict[str, Any]]:
    return topics.topic_configs(viewer, topic)


@router.patch("/topics/{topic}/configs", status_code=204)
def change_topic_configs(viewer: Asker, topic: Topic, body: models.Changes) -> None:
    topics.configure(viewer, topic, body.changes)


@router.get("/topics/{topic}/consumers")
def topic_consumers(viewer: Asker, topic: Topic) -> list[dict[str, Any]]:
    return topics.consumers(viewer, topic)


@router.post("/topics/{topic}/partitions", status_code=204)
def grow_topic(viewer: Asker, topic: Topic, body: models.Growth) -> None:
    topics.grow(viewer, topic, body.partitions)


@router.delete("/topics/{topic}/messages", status_code=204)
def empty_topic(viewer: Asker, topic: Topic) -> None:
    """Drop all records; the topic stays."""
    topics.empty(viewer, topic)
