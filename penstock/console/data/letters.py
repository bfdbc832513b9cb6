"""Dead letters of pipelines as a viewer may see them, and back to where they came from."""

from __future__ import annotations

import itertools
from typing import Any

from penstock.console.data.shown import shown
from penstock.console.data.viewer import AccessDenied, Viewer
from penstock.console.policy import MASK, masked
from penstock.operate.errors import ExitCode, UserError
from penstock.operate.letters import letters as all_letters
from penstock.operate.letters import other_readers

MOST_SHOWN = 500


def letters(viewer: Viewer, pipeline: str, limit: int = 100) -> dict[str, Any]:
    """{topic, letters}: each with its origin and why it is there; none yet if nobody has written one.

    Letters hold records of other topics: those that the viewer does not see are left out, and what is masked there is
    masked here, with the reasons, which may tell of it.
    """
    from penstock.console.data.pipelines import letter_topic
    from penstock.console.data.pipelines import pipeline as look

    topic = letter_topic(pipeline, look(viewer, pipeline)["spec"])
    viewer.insist_on_reading(topic)
    if not viewer.sees(topic) or topic not in viewer.session.client.metadata(None).topics:
        return {"topic": topic, "letters": [], "more": False}
    rows = (_row(viewer, topic, letter) for letter in all_letters(viewer.session, topic))
    found = (row for row in rows if row is not None)
    first = list(itertools.islice(found, min(limit, MOST_SHOWN) + 1))
    return {"topic": topic, "letters": first[: min(limit, MOST_SHOWN)], "more": len(first) > min(limit, MOST_SHOWN)}


def _row(viewer: Viewer, topic: str, letter: dict[str, Any]) -> dict[str, Any] | None:
    origin = letter["source_topic"]
    if origin is not None and not viewer.sees(origin):
        return None
    policy, role = viewer.policy, viewer.user.role
    hidden = policy.masked_fields(role, topic) + (policy.masked_fields(role, origin) if origin else ())
    record = masked(letter.pop("record"), policy.masks_of(role, topic))
    if hidden:
        letter = {**letter, "reason": MASK, "stack": MASK if letter["stack"] else None}
    return {**shown(topic, letter["partition"], record), **letter}


def redrive(
    viewer: Viewer, pipeline: str, *, reason: str | None = None, skip: bool = False, dry_run: bool = False
) -> dict[str, Any]:
    """Write letters back as they were, each once; `skip` only notes them as dealt with, `dry_run` changes nothing."""
    from penstock.pipelines import redrive as work

    topic = letters(viewer, pipeline, 1)["topic"]
    viewer.topic(topic)
    with viewer.change("editor", "letters.redrive", topic, skip=skip, dry_run=dry_run) as session:
        if not viewer.may("admin"):
            # Where a letter goes stands in its headers, which whoever writes to its topic can choose.
            planned = work.redrive(session.properties, topic, work.Wanted(reason=reason, skip=skip), dry_run=True)
            if not viewer.sees_all_of(planned.topics):
                raise AccessDenied("some letters came from topics that you do not see")
            for target in planned.topics:
                viewer.require(viewer.role_to_change(target))
        try:
            done = work.redrive(session.properties, topic, work.Wanted(reason=reason, skip=skip), dry_run=dry_run)
        except work.RedriveFailed as error:
            hint = "nothing of the last transaction was written; try again"
            raise UserError(str(error), hint, ExitCode.FAILED) from None
        readers = {target: other_readers(session, target) for target in done.topics}
    return {
        "topic": topic,
        "redriven": done.written,
        "skipped": done.skipped,
        "left": done.left,
        "refused": done.refused,
        "restamped": done.restamped,
        "moved": done.moved,
        "to": done.topics,
        "also_read_by": {target: groups for target, groups in readers.items() if groups},
        "dry_run": dry_run,
    }
