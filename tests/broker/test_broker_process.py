"""A broker as a process: its ready line, its signals, and what survives when it is killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from raw_client import RawClient, batch, ensure_topic, fetch_request, produce_request, request_frame

from penstock.log.verify import verify
from penstock.protocol.batch import crc_matches, iterate_batches, read_records


class Process:
    """`python -m penstock.broker` on a free port, which it keeps over restarts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = 0
        self.process: subprocess.Popen[str] | None = None

    def start(self, **settings: str) -> None:
        wanted = {
            "log.dirs": str(self.folder),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        command = [sys.executable, "-m", "penstock.broker"]
        for name, value in wanted.items():
            command += ["--set", f"{name}={value}"]
        with (self.folder.parent / "broker.log").open("a") as errors:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("ready: PLAINTEXT://127.0.0.1:"), (line, (self.folder.parent / "broker.log").read_text())
        self.port = int(line.rpartition(":")[2])

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def wait(self) -> int:
        assert self.process is not None
        return self.process.wait(60)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.wait()
        self.close()

    def close(self) -> None:
        if self.process is not None:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            assert self.process.stdout is not None
            self.process.stdout.close()


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    folder = tmp_path / "data"
    folder.mkdir()
    running = Process(folder)
    yield running
    running.close()


def test_sigterm_answers_what_is_in_work_and_leaves_a_clean_folder(process: Process) -> None:
    process.start()
    ensure_topic(process.port, "t")
    with RawClient(process.port) as polling, RawClient(process.port) as writer:
        writer.call("produce", 9, produce_request("t", batch(b"kept")))
        polling.send(request_frame("fetch", 12, fetch_request("t", 1, max_wait_ms=60_000)))
        time.sleep(0.1)  # long enough to be parked; if it is not, the answer is the same
        process.signal(signal.SIGTERM)
        _, answer = polling.read_response("fetch", 12)
        assert answer.responses[0].partitions[0].error_code == 0
        assert polling.is_closed()
    assert process.wait() == 0
    assert (process.folder / ".kafka_cleanshutdown").exists()
    process.close()
    process.start()
    with RawClient(process.port) as reader:
        answer = reader.call("fetch", 12, fetch_request("t", 0))
        assert b"kept" in bytes(answer.responses[0].partitions[0].records)


def test_a_second_broker_on_the_same_folder_is_refused_with_a_reason(process: Process) -> None:
    process.start()
    second = subprocess.run(
        [
            sys.executable,
            "-m",
            "penstock.broker",
            "--set",
            f"log.dirs={process.folder}",
            "--set",
            "listeners=PLAINTEXT://127.0.0.1:0",
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert second.returncode == 1
    assert "another broker" in second.stderr
    assert second.stdout == ""


def test_a_port_that_is_taken_is_named(process: Process, tmp_path: Path) -> None:
    process.start()
    second = subprocess.run(
        [
            sys.executable,
            "-m",
            "penstock.broker",
            "--set",
            f"log.dirs={tmp_path / 'other'}",
            "--set",
            f"listeners=PLAINTEXT://127.0.0.1:{process.port}",
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert second.returncode == 1
    assert str(process.port) in second.stderr


def test_a_bad_setting_is_named_with_what_is_allowed() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "penstock.broker", "--set", "num.partitions=many"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "num.partitions" in done.stderr
    assert "many" in done.stderr


class Writer(threading.Thread):
    """Appends numbered records, ten requests in flight, and remembers the highest number that was acknowledged."""

    def __init__(self, port: int, first: int) -> None:
        super().__init__()
        self.port = port
        self.next = first
        self.acknowledged = first

    def run(self) -> None:
        try:
            with RawClient(self.port) as client:
                in_flight = 0
                while True:
                    while in_flight < 10:
                        request = produce_request("t", batch(b"%d" % self.next), acks=-1)
                        client.send(request_frame("produce", 9, request, self.next))
                        self.next += 1
                        in_flight += 1
                    number, answer = client.read_response("produce", 9)
                    assert answer.responses[0].partition_responses[0].error_code == 0
                    self.acknowledged = number + 1
                    in_flight -= 1
        except OSError:
            return  # the broker was killed


def read_everything(port: int) -> list[bytes]:
    """All values of topic t; every batch is checked on the way."""
    values: list[bytes] = []
    offset = 0
    with RawClient(port) as client:
        while True:
            answer = client.call("fetch", 12, fetch_request("t", offset, max_bytes=4 << 20))
            (partition,) = answer.responses[0].partitions
            assert partition.error_code == 0
            data = bytes(partition.records)
            whole = list(iterate_batches(data))
            if not whole:
                return values
            for header in whole:
                assert header.base_offset == offset
                assert crc_matches(data, header)
                values += [r.value for r in read_records(data[header.position : header.position + header.size])]
                offset = header.next_offset


@pytest.mark.slow
def test_killed_again_and_again_under_load_no_acknowledged_record_is_lost(process: Process) -> None:
    rounds = int(os.environ.get("PENSTOCK_KILLS", "12"))
    chance = random.Random(rounds)
    process.start()
    ensure_topic(process.port, "t")
    acknowledged = 0
    for _ in range(rounds):
        writer = Writer(process.port, acknowledged)
        writer.start()
        time.sleep(chance.uniform(0.02, 0.2))  # the moment of death
        process.kill()
        writer.join(60)
        assert not writer.is_alive()
        if chance.random() < 0.5:
            cut_the_tail(process.folder / "t-0", chance)
        process.start()
        values = [int(value) for value in read_everything(process.port)]
        # What was acknowledged is there in order; what was not may be there too, as a retry would find it.
        assert values == list(range(len(values)))
        assert len(values) >= writer.acknowledged
        acknowledged = len(values)
    assert acknowledged > rounds
    process.signal(signal.SIGTERM)
    assert process.wait() == 0
    assert list(verify(process.folder, records=True)) == []  # checksums, offsets and indexes
    print(f"{rounds} kills, {acknowledged} acknowledged records, none lost, none corrupt, no index wrong")


def cut_the_tail(folder: Path, chance: random.Random) -> None:
    """Damage behind everything that was written: bytes of a batch that never became whole."""
    segment = max(folder.glob("*.log"), default=None)
    if segment is None:
        return  # killed before the first batch: a log without batches has no files
    torn = batch(b"torn" * 20)[: chance.randrange(1, 100)]
    with segment.open("ab") as file:
        file.write(torn)
