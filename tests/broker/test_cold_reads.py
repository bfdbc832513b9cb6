"""Fetches of what lies on the disk only: threads read indexes and segments, never the loop."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from raw_client import RawClient, batch, ensure_topic, fetch_request, produce_request, request_frame

import penstock
from penstock.broker.fetch import sliced
from penstock.log import cold, disk
from penstock.log.files import OPEN_FILES

RECORD_BYTES = 3000
BATCHES = 700


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    settings = {"log.segment.bytes": str(1 << 20), "auto.create.topics.enable": "true"}
    folder = tmp_path_factory.mktemp("cold")
    with penstock.Broker(folder, num_partitions=1, settings=settings) as running:
        ensure_topic(running.port, "old")
        with RawClient(running.port) as client:
            for _ in range(BATCHES):
                answer = client.call("produce", 9, produce_request("old", batch(b"x" * RECORD_BYTES)))
                assert answer.responses[0].partition_responses[0].error_code == 0
        yield running


def forget_pages(broker: Any) -> None:
    """Take the topic's files out of memory, where the filesystem lets us."""
    for path in Path(broker._given_folder).rglob("old-0/*"):
        if path.suffix not in (".log", ".index"):
            continue
        with path.open("r+b") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def can_tell(broker: Any) -> bool:
    forget_pages(broker)
    (path,) = [path for path in Path(broker._given_folder).rglob("old-0/*.log") if int(path.stem) == 0]
    with path.open("rb") as file:
        try:
            cold.look(file.fileno(), 1, 0)
        except cold.ColdPages:
            return True
    return False


@pytest.mark.parametrize("isolation_level", [0, 1], ids=["all", "committed"])
def test_old_records_are_found_by_threads(broker: Any, isolation_level: int) -> None:
    readers: set[int] = set()

    def pread(fd: int, size: int, position: int) -> bytes:
        readers.add(threading.get_ident())
        return os.pread(fd, size, position)

    if not can_tell(broker):
        pytest.skip("this filesystem does not tell what is in memory")
    request = fetch_request("old", 150, max_bytes=10_000, isolation_level=isolation_level)
    with disk.handed_in({"pread": pread}), RawClient(broker.port) as client:
        forget_pages(broker)
        answer = client.call("fetch", 11, request)
    (found,) = answer.responses[0].partitions
    assert found.error_code == 0
    assert len(found.records) == 10_000
    assert int.from_bytes(found.records[:8], "big") == 150
    assert readers - {broker._thread.ident}


def test_a_file_that_is_gone_is_told_as_ever(broker: Any) -> None:
    (index,) = [path for path in Path(broker._given_folder).rglob("old-0/*.index") if int(path.stem) == 0]
    content = index.read_bytes()
    forget_pages(broker)
    index.unlink()
    OPEN_FILES.forget(str(index.with_suffix(".log")))
    try:
        with RawClient(broker.port) as client:
            answer = client.call("fetch", 11, fetch_request("old", 150))
        assert answer.responses[0].partitions[0].error_code == 56
    finally:
        index.write_bytes(content)


def test_whoever_hangs_up_before_its_long_poll_leaves_none_behind(broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a thread parses its request, or reads for it."""
    monkeypatch.setattr(sliced, "LARGE_FETCH_BYTES", 10)
    parsing, gone = threading.Event(), threading.Event()
    parse = sliced.parse_fetch

    def slowly(*args: Any) -> Any:
        parsing.set()
        gone.wait(20)
        return parse(*args)

    monkeypatch.setattr(sliced, "parse_fetch", slowly)
    running = broker._broker
    open_before = sum(len(listener.connections) for listener in running.listeners)
    with RawClient(broker.port) as client:
        client.send(request_frame("fetch", 11, fetch_request("old", BATCHES, max_wait_ms=600_000)))
        assert parsing.wait(20)
    deadline = time.monotonic() + 20
    while sum(len(listener.connections) for listener in running.listeners) > open_before:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    gone.set()
    while any(not task.done() for task in list(running.dispatcher.tasks)):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert running.replicas.parking.fetch_waits == 0
