"""The process of one search at a time: `python -m penstock.console.search.process`, asked by pool.py.

A line of JSON on the standard input is a question, the line `stop` ends the one that is being answered. Answers are
lines of JSON: {read, rows} or {read, text} as often as there is something to tell, at the end {done} or {error}.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any

from penstock.client.errors import ClientError
from penstock.client.retry import RetryPolicy
from penstock.client.sync import SyncClient
from penstock.console.data.shown import shown
from penstock.console.formats import decoders
from penstock.console.policy import masks_from_data
from penstock.console.search.lines import line
from penstock.console.search.scan import Found, Portion, Scan
from penstock.console.search.wanted import Wanted
from penstock.operate.errors import UserError

TELL_SECONDS = 0.1
PATIENCE_SECONDS = 10.0
KINDNESS = 5  # of the processor: pages and brokers come first


def answer(question: dict[str, Any], stop: threading.Event) -> None:
    given = question["wanted"]
    wanted = Wanted(**{**given, "partitions": tuple(given["partitions"])})
    topic, masks = question["topic"], masks_from_data(question["masks"])
    spans = {int(partition): (start, end) for partition, (start, end) in question["spans"].items()}
    retry = RetryPolicy(total_timeout_s=PATIENCE_SECONDS)
    with SyncClient.from_properties(question["properties"], retry=retry) as client:
        scan = Scan(client, topic, spans, wanted, masks, stop)
        most: int | None = question["most"]
        portions = scan.backwards(most) if question["backwards"] and most is not None else scan.forwards()
        using = decoders(question["formats"])
        as_lines = question["form"] == "lines"
        for portion in _told(portions, most):
            if as_lines:
                text = b"".join(line(topic, partition, record) for partition, record in portion.found)
                _say({"read": portion.read, "text": text.decode()})
            else:
                rows = [shown(topic, partition, record, decoders=using) for partition, record in portion.found]
                _say({"read": portion.read, "rows": rows})


def _told(portions: Iterable[Portion], most: int | None) -> Iterable[Portion]:
    """Portions worth a line: finds at once, what was only read from time to time; all until there are enough."""
    read, count, last = 0, 0, time.monotonic()
    for portion in portions:
        read += portion.read
        found: Found = portion.found if most is None else portion.found[: most - count]
        if found or time.monotonic() - last > TELL_SECONDS:
            yield Portion(found, read)
            read, last = 0, time.monotonic()
        count += len(found)
        if most is not None and count >= most:
            return
    if read:
        yield Portion([], read)


def _say(words: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


def _listen(questions: queue.Queue[dict[str, Any]], stop: threading.Event) -> None:
    for heard in sys.stdin:
        if heard.strip() == "stop":
            stop.set()
        else:
            stop.clear()
            questions.put(json.loads(heard))
    os._exit(0)  # who asked is gone; whatever is being read is of no use to anybody


def main() -> None:
    os.nice(KINDNESS)
    questions: queue.Queue[dict[str, Any]] = queue.Queue()
    stop = threading.Event()
    threading.Thread(target=_listen, args=(questions, stop), daemon=True).start()
    while True:
        question = questions.get()
        try:
            answer(question, stop)
            _say({"done": True})
        except UserError as error:
            _say({"error": error.message, "hint": error.hint, "code": int(error.code)})
        except (ClientError, ValueError) as error:
            _say({"error": str(error), "hint": None, "code": 1})


if __name__ == "__main__":
    main()
