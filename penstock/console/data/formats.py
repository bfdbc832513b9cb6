"""How a topic's messages are read, as a viewer may know and change it."""

from __future__ import annotations

from typing import Any

from penstock.console import formats
from penstock.console.data.viewer import Viewer


def of_topic(viewer: Viewer, topic: str) -> dict[str, Any]:
    """{part: {kind, schema as text, registry}}."""
    viewer.topic(topic)
    kept = viewer.cluster.formats
    return {
        part: {"kind": one["kind"], "registry": one["registry"], "schema": kept.text_of(topic, part)}
        for part, one in kept.of(topic).items()
    }


def choose(viewer: Viewer, topic: str, part: str, kind: str, schema: str = "", registry: str = "") -> None:
    """For everybody who looks at this topic. A registry is an address that the console will call: an admin's choice."""
    viewer.topic(topic)
    role = "admin" if registry.strip() else "editor"
    with viewer.change(role, "topic.format", topic, part=part, format=kind):
        viewer.cluster.formats.choose(topic, part, kind, schema, registry.strip())


def unmasked(viewer: Viewer, topic: str) -> dict[str, Any]:
    """Formats of the parts of which nothing is masked: what is hidden in bytes is hidden whole, and not decoded."""
    masked = {field.partition(".")[0] for field in viewer.policy.masked_fields(viewer.user.role, topic)}
    return {part: one for part, one in viewer.cluster.formats.of(topic).items() if part not in masked}


def decoders(viewer: Viewer, topic: str) -> Any:
    return formats.decoders(unmasked(viewer, topic))
