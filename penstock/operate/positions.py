"""Offsets and times as people write them: `2026-11-01T12:00`, `2h`, `-1d`, `now`, `3:1500`."""

from __future__ import annotations

import datetime
import re
import time

from penstock.operate.errors import UserError, no_partition, usage_error

_RELATIVE = re.compile(r"^-?(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)(?:\s+ago)?$")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def parse_time(text: str, now_ms: int | None = None) -> int:
    """Milliseconds since 1970 of an absolute time, or of one that lies so far in the past."""
    now = int(time.time() * 1000) if now_ms is None else now_ms
    stripped = text.strip()
    if stripped == "now":
        return now
    relative = _RELATIVE.match(stripped)
    if relative:
        return now - int(float(relative.group(1)) * _SECONDS[relative.group(2)] * 1000)
    if stripped.isdigit():
        value = int(stripped)
        return value if value > 100_000_000_000 else value * 1000  # seconds and milliseconds both occur
    try:
        moment = datetime.datetime.fromisoformat(stripped)
    except ValueError:
        raise bad_time(text) from None
    if moment.tzinfo is None:
        moment = moment.astimezone()
    return int(moment.timestamp() * 1000)


def bad_time(text: str) -> UserError:
    return usage_error(f"{text!r} is not a time", "write 2026-11-01T12:00:00, 1762000000, 30m, 2h, 7d or now")


def parse_duration(text: str) -> float:
    """Seconds of `30s`, `5m`, `2h`; a bare number is seconds."""
    stripped = text.strip()
    found = _RELATIVE.match(stripped)
    if found and not stripped.startswith("-"):
        return float(found.group(1)) * _SECONDS[found.group(2)]
    try:
        return float(stripped)
    except ValueError:
        raise usage_error(f"{text!r} is not a duration", "write 30s, 5m or 2h") from None


def parse_partition_offsets(pairs: list[str], known: set[int], topic: str) -> dict[int, int]:
    """{partition: offset} from `PARTITION:OFFSET` words; a bare offset means every partition."""
    found: dict[int, int] = {}
    for pair in pairs:
        partition, colon, offset = pair.rpartition(":")
        try:
            value = int(offset)
            indexes = {int(partition)} if colon else known
        except ValueError:
            raise usage_error(f"{pair!r} is not PARTITION:OFFSET", "for example 0:1500") from None
        missing = indexes - known
        if missing:
            raise no_partition(topic, min(missing), known)
        found.update(dict.fromkeys(indexes, value))
    return found


def format_time(timestamp_ms: int) -> str:
    if timestamp_ms < 0:
        return "-"
    moment = datetime.datetime.fromtimestamp(timestamp_ms / 1000, datetime.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
