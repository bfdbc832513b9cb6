"""What was refused, on record: who, from where, which operation on which resource.

The metric counts every refusal. Lines are bounded, so that nobody fills the disk by asking for what he may not have:
the same refusal is written once per interval, with how often it happened meanwhile, and all of them together at most so
many times per second.
"""

from __future__ import annotations

import logging
from collections import OrderedDict

from penstock.base.clock import Clock
from penstock.base.metrics import Metrics

__all__ = ["Audit"]

logger = logging.getLogger("penstock.security.audit")

REPEAT_SECONDS = 10.0
LINES_PER_SECOND = 50
REMEMBERED = 2000
SHOWN_CHARACTERS = 200

Refusal = tuple[str, str, str, str, str]
"""(principal, host, operation, kind of resource, its name)"""


class Audit:
    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        self._recent: OrderedDict[Refusal, list[float]] = OrderedDict()  # → [when it was written, how often since]
        self._second = 0
        self._lines = 0
        self._left_out = 0

    def denied(self, principal: str, host: str, operation: str, kind: str, name: str) -> None:
        self._metrics.cell("authorization_denied", operation).value += 1
        refusal = (principal, host, operation, kind, name)
        now = self._clock.monotonic()
        known = self._recent.get(refusal)
        if known is not None and now - known[0] < REPEAT_SECONDS:
            known[1] += 1
            return
        if not self._may_write(now):
            return
        again = f" ({int(known[1])} more since the last line)" if known is not None and known[1] else ""
        self._recent[refusal] = [now, 0]
        self._recent.move_to_end(refusal)
        if len(self._recent) > REMEMBERED:
            self._recent.popitem(last=False)
        logger.info(
            "denied principal=%s address=%s operation=%s resource=%s:%s%s",
            _shown(principal),
            host,
            operation,
            kind,
            _shown(name),
            again,
        )

    def _may_write(self, now: float) -> bool:
        if int(now) != self._second:
            if self._left_out:
                logger.warning("%d refusals were not written down, there were too many", self._left_out)
            self._second, self._lines, self._left_out = int(now), 0, 0
        self._lines += 1
        if self._lines > LINES_PER_SECOND:
            self._left_out += 1
            return False
        return True


def _shown(text: str) -> str:
    """No name from outside may begin a new line or another field, or grow without end."""
    cut = text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"
    return cut if cut.isprintable() and " " not in cut else repr(cut)
