"""Reading beside one Kafka: small fetches of a session, and consumers that wait at the end of a partition."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial

from bench import large_fetches, load, micro_fetch, targets
from bench.load import create_topic
from bench.report import Row, alternate, at_least, at_most, warm
from bench.stage import Scenario, Stage
from bench.tail_load import ROOM_FOR_SESSIONS

SECTION = "Fetches"


def measured(
    sides: dict[str, targets.Target], rounds: int, measure: Callable[[targets.Target], dict[str, float]]
) -> tuple[dict[str, float], dict[str, float]]:
    """Medians of ours and theirs."""
    measures = {name: partial(measure, target) for name, target in sides.items()}
    warm(measures)
    seen = alternate(rounds, measures, fresh_memory=False)
    return seen["penstock"], seen["kafka"]


def rows_of_small_fetches(sides: dict[str, targets.Target], rounds: int, seconds: float) -> list[Row]:
    ours, theirs = measured(sides, rounds, lambda target: micro_fetch.session_fetches(target, seconds))
    name = "1 KB fetches of one session, record after record, 10 in flight"
    return [
        at_least(SECTION, name, "requests/s", ours["per s"], theirs["per s"], 5),
        at_most(SECTION, f"{name}: broker CPU", "µs/request", ours["µs"], theirs["µs"], 1 / 4),
    ]


def rows_of_fan_out(
    sides: dict[str, targets.Target], consumers: int, rate: float, rounds: int, seconds: float
) -> list[Row]:
    ours, theirs = measured(sides, rounds, lambda target: micro_fetch.fan_out(target, consumers, rate, seconds))
    name = f"{consumers} consumers at the end of one partition, {rate:g} records/s"
    return [
        at_most(SECTION, f"{name}: broker CPU", "µs/delivery", ours["µs"], theirs["µs"], 1 / 3),
        at_most(SECTION, f"{name}: p50", "ms", ours["p50 ms"], theirs["p50 ms"], 1 / 2),
        at_most(SECTION, f"{name}: p99", "ms", ours["p99 ms"], theirs["p99 ms"], 1 / 2),
    ]


@contextlib.contextmanager
def small_stage() -> Iterator[dict[str, targets.Target]]:
    with (
        targets.penstock_broker(ROOM_FOR_SESSIONS) as penstock,
        targets.kafka_broker(settings=ROOM_FOR_SESSIONS) as kafka,
    ):
        sides = {"penstock": penstock, "kafka": kafka}
        for target in sides.values():
            for topic in ("small", "tail"):
                create_topic(target.port, topic)
            load.check_produce(target.port, load.produce_frame("tail", 0, load.one_batch(1, 100)))
            micro_fetch.fill(target.port)
        yield sides


def fan_out_of(consumers: int, rate: float) -> Scenario:
    return lambda sides, rounds, seconds: rows_of_fan_out(sides, consumers, rate, rounds, seconds)


STAGES = [
    Stage(
        {
            "small": rows_of_small_fetches,
            **{f"tail-{consumers}": fan_out_of(consumers, rate) for consumers, rate in micro_fetch.FAN_OUTS.items()},
        },
        small_stage,
    ),
    large_fetches.STAGE,
]
