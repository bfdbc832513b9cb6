"""Applied pipelines: one record per pipeline in the compacted topic `__penstock_pipelines`."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal

from penstock.client.records import EARLIEST
from penstock.client.sync import SyncClient
from penstock.pipelines.admin import ensure_topic, write
from penstock.pipelines.connectors.topic_sample import records_of
from penstock.pipelines.portable import with_contents
from penstock.pipelines.secrets import plain_secrets
from penstock.pipelines.spec import PipelineSpec, SpecError, from_data

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

    def parsed(self) -> PipelineSpec:
        return from_data(self.spec)

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, value: bytes) -> Applied:
        return cls(**json.loads(value))


def partition_of(name: str) -> int:
    return zlib.crc32(name.encode()) % PARTITIONS


class PipelineStore:
    def __init__(self, client: SyncClient) -> None:
        self._client = client

    def ensure(self) -> None:
        self._client.run(lambda inner: ensure_topic(inner, TOPIC, partitions=PARTITIONS, settings=_SETTINGS))

    def all(self) -> dict[str, Applied]:
        self.ensure()
        found: dict[str, Applied] = {}
        for _, record in records_of(self._client, TOPIC, start=EARLIEST, limit=_MANY):
            name = (record.key or b"").decode()
            if record.value is None:
                found.pop(name, None)
            else:
                found[name] = Applied.from_json(record.value)
        return dict(sorted(found.items()))

    def apply(self, spec: PipelineSpec, *, reset: str | None = None, backfill: bool = False) -> Applied:
        data = with_contents(spec.to_data())
        for path in plain_secrets(data):
            raise SpecError(
                f"{'.'.join(path)} is a secret in plain text; write ${{env:NAME}} or ${{file:PATH}}, since an applied"
                " pipeline can be read by whoever can read the topic"
            )
        known = self.all().get(spec.name)
        applied = Applied(
            name=spec.name,
            spec=data,
            desired="running",
            generation=1 if known is None else known.generation + 1,
            changed_at_ms=_now_ms(),
            reset=reset if reset is not None else (known.reset if known is not None else None),
            backfill=backfill if reset is not None else (known.backfill if known is not None else False),
        )
        self._put(applied.name, applied.to_json())
        return applied

    def change(self, known: Applied, desired: Literal["running", "stopped"]) -> Applied:
        """Stop, start or (running → running) restart."""
        changed = replace(known, desired=desired, generation=known.generation + 1, changed_at_ms=_now_ms())
        self._put(changed.name, changed.to_json())
        return changed

    def delete(self, name: str) -> None:
        self._put(name, None)

    def _put(self, name: str, value: bytes | None) -> None:
        self.ensure()
        self._client.run(lambda inner: write(inner, TOPIC, partition_of(name), [(name.encode(), value, ())]))


def _now_ms() -> int:
    return int(time.time() * 1000)


def settings_for_librdkafka(properties: Mapping[str, str]) -> dict[str, Any]:
    return {"log_level": 2, **properties}
