"""Applied pipelines: one record per pipeline in the compacted topic `__penstock_pipelines`."""

from __future__ import annotations

import getpass
import json
import logging
import os
import socket
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, Literal

from penstock.client.client import Client
from penstock.client.errors import KafkaError
from penstock.client.records import EARLIEST
from penstock.client.sync import SyncClient
from penstock.pipelines.admin import ensure_topic
from penstock.pipelines.connectors.topic_sample import records_of
from penstock.pipelines.portable import with_contents
from penstock.pipelines.secrets import plain_secrets
from penstock.pipelines.spark import sink_transactions as transactions
from penstock.pipelines.spec import PipelineSpec, SpecError, from_data

log = logging.getLogger(__name__)

TOPIC: Final = "__penstock_pipelines"
PARTITIONS: Final = 16  # at most so many runners share the work
_SETTINGS: Final = {"cleanup.policy": "compact", "segment.bytes": "16777216", "min.cleanable.dirty.ratio": "0.1"}
_MANY: Final = 1_000_000


@dataclass(frozen=True)
class Applied:
    name: str
    spec: dict[str, Any]
    desired: Literal["running", "stopped"]
    generation: int  # grows with every change: a runner restarts a driver of an older one
    changed_at_ms: int
    reset: str | None = None  # forget what was read, once per value
    backfill: bool = False
    changed_by: str | None = None  # user@host
    discard_state: bool = False  # with `reset`: offsets are kept
    begin: dict[str, dict[str, int]] | None = None  # with `discard_state`: topic → partition → offset to go on at

    def parsed(self) -> PipelineSpec:
        return from_data(self.spec)

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, value: bytes) -> Applied:
        """Unreadable for what is none: whoever may write to the topic may write anything."""
        try:
            found = cls(**json.loads(value))
        except (TypeError, ValueError, RecursionError) as error:
            raise Unreadable(f"this is no applied pipeline: {error}") from None
        numbers = isinstance(found.generation, int) and isinstance(found.changed_at_ms, int)
        if not isinstance(found.name, str) or not isinstance(found.spec, dict) or not numbers:
            raise Unreadable("this is no applied pipeline: its name, spec, generation or time is of another kind")
        return found


def partition_of(name: str) -> int:
    return zlib.crc32(name.encode()) % PARTITIONS


class Unreadable(ValueError):
    """A record of the topic that is no applied pipeline."""


class Conflict(SpecError):
    """Somebody else changed the pipeline meanwhile; the message says who and when."""


class PipelineStore:
    """Reading creates nothing. Changes of one pipeline come one after the other: each sees the one before, or fails."""

    def __init__(self, client: SyncClient) -> None:
        self._client = client

    def ensure(self) -> None:
        self._client.run(
            lambda inner: ensure_topic(inner, TOPIC, partitions=PARTITIONS, settings=_SETTINGS, internal=True)
        )

    def all(self) -> dict[str, Applied]:
        known = self._client.metadata([TOPIC]).topics.get(TOPIC)
        if known is None or known.error_code:
            return {}
        found: dict[str, Applied] = {}
        for _, record in records_of(self._client, TOPIC, start=EARLIEST, limit=_MANY):
            name = (record.key or b"").decode("utf-8", "replace")
            try:
                if record.value is None:
                    found.pop(name, None)
                else:
                    found[name] = Applied.from_json(record.value)
            except Unreadable as error:
                log.warning("%s at %d, pipeline %r: %s", TOPIC, record.offset, name, error)
        return dict(sorted(found.items()))

    def apply(
        self,
        spec: PipelineSpec,
        *,
        reset: str | None = None,
        backfill: bool = False,
        discard_state: bool = False,
        begin: dict[str, dict[str, int]] | None = None,
        expected: int | None = None,
        by: str | None = None,
        desired: Literal["running", "stopped"] = "running",
    ) -> Applied:
        """Store a pipeline. `expected`: the generation that the change was made of; 0 for none; None for whichever.

        `by`: who is said to have done it; this process's user when absent.
        """
        data = with_contents(spec.to_data())
        for path in plain_secrets(data):
            raise SpecError(
                f"{'.'.join(path)} is a secret in plain text; write ${{env:NAME}} or ${{file:PATH}}, since an applied"
                " pipeline can be read by whoever can read the topic"
            )

        def change(known: Applied | None) -> Applied:
            return Applied(
                name=spec.name,
                spec=data,
                desired=desired,
                generation=1 if known is None else known.generation + 1,
                changed_at_ms=_now_ms(),
                reset=reset if reset is not None else (known.reset if known is not None else None),
                backfill=backfill if reset is not None else (known.backfill if known is not None else False),
                changed_by=by or _who(),
                discard_state=discard_state if reset is not None else (known is not None and known.discard_state),
                begin=begin if reset is not None else (known.begin if known is not None else None),
            )

        applied: Applied = self._replace(spec.name, change, expected)
        return applied

    def change(self, known: Applied, desired: Literal["running", "stopped"], by: str | None = None) -> Applied:
        """Stop, start or (running → running) restart."""

        def changed(_: Applied | None) -> Applied:
            return replace(
                known,
                desired=desired,
                generation=known.generation + 1,
                changed_at_ms=_now_ms(),
                changed_by=by or _who(),
            )

        applied: Applied = self._replace(known.name, changed, known.generation)
        return applied

    def delete(self, name: str) -> None:
        self._replace(name, lambda known: None, None)

    def _replace(self, name: str, change: Callable[[Applied | None], Applied | None], expected: int | None) -> Any:
        """Compare and set: whoever opens the pipeline's id last reads what was written before and fences the others."""
        self.ensure()
        place = (TOPIC, partition_of(name))
        owner = self._client.run(lambda inner: transactions.open_transaction(inner, f"penstock.{name}.apply"))
        self._client.run(lambda inner: transactions.settled(inner, *place))
        known = self.all().get(name)
        if expected is not None and expected != (0 if known is None else known.generation):
            raise Conflict(_conflict(name, known))
        changed = change(known)
        value = None if changed is None else changed.to_json()

        async def write(inner: Client) -> None:
            implicit = await transactions.uses_implicit_partitions(inner)
            await transactions.write_record(inner, owner, place, name, value, implicit=implicit)
            await transactions.end_transaction(inner, owner, commit=True, implicit=implicit)
            await transactions.settled(inner, *place)

        try:
            self._client.run(write)
        except (transactions.TransactionLost, KafkaError) as error:
            if isinstance(error, KafkaError) and error.code not in transactions.FENCED:
                raise
            self._client.run(lambda inner: transactions.settled(inner, *place))
            raise Conflict(_conflict(name, self.all().get(name))) from None
        return changed


def _conflict(name: str, now: Applied | None) -> str:
    if now is None:
        return f"pipeline {name} was deleted, or is being changed by somebody else right now; look, then try again"
    at = datetime.fromtimestamp(now.changed_at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    by = f" by {now.changed_by}" if now.changed_by else ""
    return f"pipeline {name} was changed{by} at {at}: generation {now.generation} is there. Look at it, then try again"


def _who() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in many containers
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def _now_ms() -> int:
    return int(time.time() * 1000)


def settings_for_librdkafka(properties: Mapping[str, str]) -> dict[str, Any]:
    return {"log_level": 2, **properties}
