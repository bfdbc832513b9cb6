"""Schedules: when a pipeline that ends by itself runs again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock.pipelines.control.runner import Runner
from penstock.pipelines.control.store import Applied
from penstock.pipelines.schedule import Schedule
from penstock.pipelines.spec import SpecError, from_data


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("cron", "now", "expected"),
    [
        ("0 * * * *", "2026-01-01T00:00", "2026-01-01T01:00"),
        ("*/15 8-10 * * *", "2026-01-01T10:50", "2026-01-02T08:00"),
        ("30 6 * * mon-fri", "2026-11-13T07:00", "2026-11-16T06:30"),  # Friday → Monday
        ("0 0 1 jan,jul *", "2026-01-01T00:00", "2026-07-01T00:00"),
        ("0 0 29 2 *", "2026-01-01T00:00", "2028-02-29T00:00"),
        ("0 12 13 * fri", "2026-11-01T00:00", "2026-11-06T12:00"),  # either is enough
        ("5 4 * * 7", "2026-11-14T00:00", "2026-11-15T04:05"),  # 0 and 7 are Sunday
        ("59 23 31 12 *", "2026-12-31T23:59", "2027-12-31T23:59"),
    ],
)
def test_cron(cron: str, now: str, expected: str) -> None:
    assert Schedule(cron=cron).after(at(now)) == at(expected)


@pytest.mark.parametrize(
    ("cron", "reason"),
    [
        ("* * * *", "has 4 fields; cron has five"),
        ("60 * * * *", "'60' is no minute: it lies between 0 and 59"),
        ("0 5-3 * * *", "'5-3' is no hour"),
        ("0 0 * foo *", "'foo' is no month"),
        ("*/0 * * * *", "is no minute"),
        ("0 0 30 2 *", "never comes"),
    ],
)
def test_what_is_no_cron_is_said(cron: str, reason: str) -> None:
    with pytest.raises(SpecError, match=reason):
        from_data({**SPEC, "schedule": {"cron": cron}})


SPEC: dict[str, Any] = {
    "name": "nightly",
    "sources": {"o": {"topic": "o"}},
    "sinks": {"out": {"from": "o", "topic": "out"}},
    "trigger": "available-now",
}


def test_short_forms_and_what_cannot_be_scheduled() -> None:
    assert from_data({**SPEC, "schedule": "2 hours"}).schedule == Schedule(every="2 hours")
    assert from_data({**SPEC, "schedule": "0 3 * * *"}).schedule == Schedule(cron="0 3 * * *")
    with pytest.raises(SpecError, match="runs all the time has none; give it trigger: available-now"):
        from_data({**SPEC, "schedule": "1 hour", "trigger": "1 second"})


class Run:
    """Stands for the driver's process of one run."""

    finished = False


def test_a_runner_starts_a_run_when_it_is_due_and_the_last_one_is_over() -> None:
    runner = Runner({}, "nowhere")
    clock = [at("2026-01-01T00:00")]
    runner._now = lambda: clock[0]
    spec = from_data({**SPEC, "schedule": "1 hour"}).to_data()
    applied = Applied("nightly", spec, "running", 1, 0)
    run: Any = Run()
    assert runner._is_due(applied, None)
    clock[0] += timedelta(minutes=59)
    run.finished = True
    assert not runner._is_due(applied, run)
    clock[0] += timedelta(minutes=1)
    run.finished = False
    assert not runner._is_due(applied, run)  # busy for longer than an hour
    run.finished = True
    assert runner._is_due(applied, run) and not runner._is_due(applied, run)
    # Without a schedule it runs once; applied anew it is due at once.
    assert not runner._is_due(Applied("nightly", SPEC, "running", 1, 0), run)
    assert runner._is_due(Applied("nightly", spec, "running", 2, 0), None)
