"""When a pipeline that ends by itself runs again: every so often, or by the five fields of cron, in UTC. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from pydantic import BaseModel, ConfigDict, model_validator

from penstock.pipelines.durations import Duration, duration_ms

_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
# name, lowest, highest, names of values
_FIELDS: Final = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of the month", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("day of the week", 0, 7, _DAYS),
)
_FARTHEST_DAYS: Final = 366 * 8 + 1  # the 29th of February may be eight years away


class Schedule(BaseModel):
    """When an applied pipeline with the trigger available-now runs: `every` so often, or by `cron`.

    A run that is still busy is waited for.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    every: Duration | None = None  # from start to start; the first run begins when the pipeline is applied
    cron: str | None = None  # minute, hour, day, month, day of the week; in UTC

    @model_validator(mode="after")
    def _exactly_one(self) -> Schedule:
        if (self.every is None) == (self.cron is None):
            raise ValueError("a schedule is one of every and cron")
        if self.cron is not None and next_cron(_parsed(self.cron), datetime(2024, 1, 1, tzinfo=UTC)) is None:
            raise ValueError(f"{self.cron!r} never comes: there is no such day")
        return self

    def first(self, now: datetime) -> datetime:
        return now if self.every is not None else self.after(now)

    def after(self, now: datetime) -> datetime:
        """The next time after a run that began at `now`."""
        if self.every is not None:
            return now + timedelta(milliseconds=duration_ms(self.every))
        assert self.cron is not None
        found = next_cron(_parsed(self.cron), now)
        assert found is not None  # checked when the schedule was made
        return found


Fields = tuple[frozenset[int], ...]


def next_cron(fields: Fields, now: datetime) -> datetime | None:
    """The first minute after `now` that fits, None if none ever does."""
    minutes, hours, days, months, weekdays = fields
    earliest = now.astimezone(UTC).replace(second=0, microsecond=0) + timedelta(minutes=1)
    for ahead in range(_FARTHEST_DAYS):
        day = (earliest + timedelta(days=ahead)).date()
        if day.month not in months or not _fits(day.day, day.isoweekday() % 7, days, weekdays):
            continue
        for hour in sorted(hours):
            for minute in sorted(minutes):
                found = datetime(day.year, day.month, day.day, hour, minute, tzinfo=UTC)
                if found >= earliest:
                    return found
    return None


def _fits(day: int, weekday: int, days: frozenset[int], weekdays: frozenset[int]) -> bool:
    """As cron has it: if both are restricted, one of them is enough."""
    if len(days) < 31 and len(weekdays) < 7:
        return day in days or weekday in weekdays
    return day in days and weekday in weekdays


def _parsed(text: str) -> Fields:
    parts = text.split()
    if len(parts) != len(_FIELDS):
        raise ValueError(f"{text!r} has {len(parts)} fields; cron has five: minute, hour, day, month, day of the week")
    minutes, hours, days, months, weekdays = (
        _field(part.lower(), *field) for part, field in zip(parts, _FIELDS, strict=True)
    )
    return minutes, hours, days, months, frozenset(day % 7 for day in weekdays)


def _field(text: str, name: str, lowest: int, highest: int, names: tuple[str, ...]) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        try:
            if span == "*":
                begin, end = lowest, highest
            else:
                begin = _number(first, lowest, names)
                end = _number(last, lowest, names) if last else (highest if step else begin)
            every = int(step) if step else 1
        except ValueError:
            raise ValueError(f"{part!r} is no {name}") from None
        if not (lowest <= begin <= end <= highest and every > 0):
            raise ValueError(f"{part!r} is no {name}: it lies between {lowest} and {highest}")
        found.update(range(begin, end + 1, every))
    return frozenset(found)


def _number(text: str, lowest: int, names: tuple[str, ...]) -> int:
    return names.index(text) + lowest if text in names else int(text)
