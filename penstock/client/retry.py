"""When to try again: back-off with jitter until a deadline, and which answers are worth another try."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from penstock.protocol.errors import ErrorCode
from penstock.protocol.messages import Struct

__all__ = ["Attempts", "RetryPolicy", "error_codes", "says_only", "worth_another_try"]

# The broker cannot serve this (any more, or yet): nothing was done, and another try may find the right one.
ROUTING_ERRORS = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Bounds for one call with all its tries."""

    total_timeout_s: float = 60.0
    first_backoff_s: float = 0.05
    max_backoff_s: float = 1.0
    missing_topic_wait_s: float = 5.0  # a topic that was just created may not be known everywhere yet


class Attempts:
    """Counts the tries of one call: `while True: try …; await attempts.pause()` ends when the deadline is reached."""

    def __init__(self, policy: RetryPolicy, timeout_s: float | None = None) -> None:
        self._policy = policy
        self._started = time.monotonic()
        self._deadline = self._started + (policy.total_timeout_s if timeout_s is None else timeout_s)
        self.count = 0

    @property
    def remaining_s(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._started

    async def pause(self, within_s: float | None = None) -> bool:
        """Wait before the next try; False when there is no time left for one (`within_s` since the start, if given)."""
        self.count += 1
        remaining = self.remaining_s if within_s is None else min(self.remaining_s, within_s - self.elapsed_s)
        backoff = min(self._policy.max_backoff_s, self._policy.first_backoff_s * 2 ** min(self.count - 1, 10))
        wait_s = backoff * random.uniform(0.8, 1.2)
        if wait_s >= remaining:
            return False
        await asyncio.sleep(wait_s)
        return True


def worth_another_try(response: Any) -> int:
    """The error code for which the whole request should be sent again, or 0.

    An answer that did part of the work is the caller's to judge: it is never repeated here.
    """
    top = response.__dict__.get("error_code", 0)
    if top:
        return int(top) if top in ROUTING_ERRORS or top == ErrorCode.REQUEST_TIMED_OUT else 0
    nested = list(error_codes(response))
    if nested and all(code in ROUTING_ERRORS for code in nested):
        return nested[0]
    return 0


def says_only(response: Any, code: ErrorCode) -> bool:
    """Whether the answer is this one error for everything that was asked."""
    nested = list(error_codes(response))
    return bool(nested) and all(found == code for found in nested)


def error_codes(response: Any) -> Iterator[int]:
    """All error codes below the top of a response, those of the innermost structs only."""
    for value in response.__dict__.values():
        items = value if isinstance(value, list) else (value,)
        for item in items:
            if not isinstance(item, Struct):
                continue
            inner = list(error_codes(item))
            if inner and not item.__dict__.get("error_code"):
                yield from inner
            elif "error_code" in item.__dict__:
                yield item.__dict__["error_code"]
