"""Who sees a pipeline and who may apply it: by the topics that its spec names, and by what a runner would do for it.

A runner runs a pipeline with its own rights on its own machine. So applying is an admin's right, unless lists say what
editors' pipelines may use, and the pipeline uses nothing else: the list of every runner that could come to run it
(`penstock pipeline runner --open-connector …`), and that of the file of `--access` ([runner]) if there is one.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.console.data.viewer import AccessDenied, Viewer
from penstock.operate import admin
from penstock.pipelines.control.registration import NOBODY, Opened, living
from penstock.pipelines.secrets import Allowed, SecretError, references
from penstock.pipelines.spec import PipelineSpec

_CODE = re.compile(r"\b(reflect|try_reflect|java_method)\b|\btransform\b.*\busing\b|`", re.IGNORECASE | re.DOTALL)
_OUTSIDE = frozenset({"registry", "descriptor_file", "path", "url"})


def topics_named(spec: Mapping[str, Any]) -> tuple[set[str], bool]:
    """(the topics that a spec names, whether it may read or write others too: by a pattern, or by a column)."""
    found: set[str] = set()
    others = False
    for key, value in _leaves(spec):
        if key in ("topic", "topics") or key.endswith("_topic"):
            found.add(value)
        elif key in ("pattern", "topic_column"):
            others = True
        elif key == "to" and value.startswith("topic:"):
            found.add(value.partition(":")[2])
    return found, others


def _leaves(data: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every text with the key that it stands under."""
    if isinstance(data, Mapping):
        for name, item in data.items():
            yield from _leaves(item, str(name))
    elif isinstance(data, list | tuple):
        for item in data:
            yield from _leaves(item, key)
    elif isinstance(data, str):
        yield key, data


def sees(viewer: Viewer, spec: Mapping[str, Any]) -> bool:
    """With all topics that it names: its spec, its log and its graph name them too."""
    if viewer.sees_everything:
        return True
    named, others = topics_named(spec)
    return not (others and not viewer.policy.sees_everything(viewer.user.role)) and viewer.sees_all_of(named)


def insist_on_applying(viewer: Viewer, spec: PipelineSpec) -> None:
    """An admin, or an editor whose pipeline uses only what the list allows."""
    viewer.require("editor")
    if not viewer.may("admin"):
        reason = _needs_admin(viewer, spec)
        if reason is not None:
            raise AccessDenied(f"applying this takes the role admin: {reason}")


def _needs_admin(viewer: Viewer, spec: PipelineSpec) -> str | None:
    lists = _lists(viewer)
    if isinstance(lists, str):
        return lists
    if viewer.credentials is not None:
        return "a runner works with its own rights, not with yours"
    data = spec.to_data()
    if not sees(viewer, data):
        return "it names topics that you do not see"
    named, others = topics_named(data)
    if others:
        return "a pattern or a column says which topics it reads or writes"
    for topic in sorted(named):
        if admin.is_hidden(topic):
            return f"{topic} is the cluster's own"
        if viewer.masks([topic]):
            return f"{topic} has fields that are masked for you"
    for allowed in lists:
        reason = _uses_more(spec, data, allowed)
        if reason is not None:
            return reason
    return None


@dataclass(frozen=True)
class _Listed:
    whose: str
    opened: Opened
    looked_up: Allowed | None = None
    """Which secrets a runner looks up at all; None: not said here."""


def _lists(viewer: Viewer) -> list[_Listed] | str:
    """Every list that must allow it, or why there is none."""
    found = []
    if viewer.runner is not None:
        opened = Opened(tuple(viewer.runner.connectors), tuple(viewer.runner.secrets))
        found.append(_Listed("the list", opened))
    said = viewer.snapshot.memory.states.get(NOBODY, {}).get("runners", {})
    for runner in living(said):
        if runner.opened is not None:
            found.append(_Listed(f"the list of the runner {runner.runner}", runner.opened, runner.allowed))
        elif viewer.runner is None:
            return f"the runner {runner.runner} opens nothing to editors (--open-connector, or [runner] of --access)"
    return found or "no list says what pipelines of editors may use ([runner] in the file of --access)"


def _uses_more(spec: PipelineSpec, data: Mapping[str, Any], allowed: _Listed) -> str | None:
    used = [source.connector for source in spec.sources.values()] + [sink.connector for sink in spec.sinks.values()]
    for connector in used:
        if connector not in allowed.opened.connectors:
            return f"the connector {connector} is not on {allowed.whose}"
    if spec.modules or any(view.python is not None for view in spec.views.values()):
        return "it brings Python code"
    for name in ("master", "spark", "kafka", "checkpoints"):
        if getattr(spec.settings, name):
            return f"it sets settings.{name}"
    if any(alert.to.startswith("webhook:") for alert in spec.alerts):
        return "an alert calls an address"
    for key, value in _leaves(data):
        if key in _OUTSIDE:
            return f"{key} reaches outside of the cluster"
        if _CODE.search(value):
            return f"{value[:60]!r} could run code or read files"
        for reference in references(value):
            reason = _not_opened(reference, allowed)
            if reason is not None:
                return reason
    return None


def _not_opened(reference: str, allowed: _Listed) -> str | None:
    kind, _, name = reference.partition(":")
    # A pattern says where a path begins: it must not lead out of there again.
    if ".." in name.split("/") or not any(fnmatch.fnmatchcase(reference, one) for one in allowed.opened.secrets):
        return f"the secret {reference} is not on {allowed.whose}"
    try:
        if allowed.looked_up is not None:
            allowed.looked_up.insist(kind, name, reference)
    except SecretError as error:
        return str(error)
    return None
