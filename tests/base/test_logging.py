"""Log lines carry fields, as text or as JSON, and the host's logging is left alone."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from penstock.base.logging import Repetitions, configure, get_logger


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    logger = logging.getLogger("penstock")
    before = (list(logger.handlers), logger.level, logger.propagate)
    yield
    logger.handlers, logger.propagate = before[0], before[2]
    logger.setLevel(before[1])


def test_text_lines_name_level_place_sentence_and_fields() -> None:
    stream = io.StringIO()
    configure("info", "text", stream)
    get_logger("replication", broker=1).info("follower left the ISR", topic="my topic", replica=2)
    line = stream.getvalue()
    assert line.endswith('INFO    replication: follower left the ISR broker=1 topic="my topic" replica=2\n')


def test_json_lines_are_objects_with_the_exception_inside() -> None:
    stream = io.StringIO()
    configure("debug", "json", stream)
    try:
        raise ValueError("no")
    except ValueError:
        get_logger("log").bind(partition=3).exception("cannot append")
    entry = json.loads(stream.getvalue())
    assert (entry["level"], entry["logger"], entry["partition"]) == ("error", "penstock.log", 3)
    assert "ValueError: no" in entry["exception"]


def test_lines_below_the_level_are_not_written_and_a_second_call_replaces_the_first() -> None:
    first, second = io.StringIO(), io.StringIO()
    configure("info", "text", first)
    configure("error", "text", second)
    get_logger("x").warning("quiet")
    get_logger("x").error("loud")
    assert first.getvalue() == ""
    assert second.getvalue().count("\n") == 1


def test_the_root_logger_is_never_touched() -> None:
    root = logging.getLogger()
    before = (list(root.handlers), root.level)
    configure("debug", "json", io.StringIO())
    get_logger("x").info("hello")
    assert (list(root.handlers), root.level) == before


def test_a_failure_that_lasts_is_said_once_and_then_seldom() -> None:
    now = [0.0]
    stream = io.StringIO()
    handler = configure("info", "text", stream)
    handler.filters.clear()
    handler.addFilter(Repetitions(lambda: now[0]))
    logger = get_logger("cluster")
    for _ in range(200):
        logger.warning("broker 2 cannot be reached", error="refused")
        now[0] += 0.05
    logger.warning("broker 3 cannot be reached", error="refused")
    now[0] += 60
    logger.warning("broker 2 cannot be reached", error="refused")
    lines = stream.getvalue().splitlines()
    assert len(lines) == 3
    assert "broker 2" in lines[0] and "broker 3" in lines[1]
    assert "broker 2" in lines[2] and lines[2].endswith("repeated=199")


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_what_a_client_sends_does_not_fill_the_log(log_format: str) -> None:
    stream = io.StringIO()
    configure("info", log_format, stream)
    get_logger("test").error("x" * 1_000_000, field="y" * 1_000_000)
    assert len(stream.getvalue()) < 20_000
    assert "characters" in stream.getvalue()


def test_nobody_writes_lines_of_his_own_into_the_log() -> None:
    stream = io.StringIO()
    configure(stream=stream)
    forged = "g\n2026-01-01T00:00:00.000Z INFO    security.audit: denied principal=User:bob\x1b[2K"
    logger = logging.getLogger("penstock.test")
    logger.info("group=%s is empty", forged)
    get_logger("test").info("left", group=forged)
    try:
        raise ValueError(forged)
    except ValueError:
        logger.exception("bad")
    lines = stream.getvalue().splitlines()
    assert not any(line.startswith("2026-01-01T") for line in lines)
    assert "\x1b" not in stream.getvalue()
    assert [line.startswith("  ") for line in lines[:4]] == [False, False, False, True]
