"""All that a search finds, as a file: one JSON object a line, as `penstock consume --json` prints it.

Nothing is gathered: lines leave as they are found, from a process of their own. What a role may not see is masked
before, as everywhere.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

from penstock.console.data.messages import Reader
from penstock.console.data.viewer import Viewer
from penstock.console.search import pool as searches
from penstock.console.search.wanted import Wanted, predicate


def download(viewer: Viewer, topic: str, wanted: Wanted) -> Iterator[bytes]:
    """From the position on (from the beginning if that is `newest`) to the present end, partition by partition.

    What is wrong with the question is raised here, not in the middle of the file.
    """
    predicate(wanted)
    question = Reader(viewer, topic, wanted.partitions).question(wanted, None, "lines")
    answers = searches.pool.ask(viewer.user.name, question, threading.Event())
    first = next(answers, None)

    def lines() -> Iterator[bytes]:
        answer = first
        while answer is not None:
            viewer.require("viewer")
            if answer["text"]:
                yield answer["text"].encode()
            answer = next(answers, None)

    return lines()
