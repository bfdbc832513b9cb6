"""A real file system without space, under the logs and the metadata of a broker."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from raw_client import RawClient

from penstock.protocol import messages
from penstock.protocol.errors import ErrorCode


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    if (
        os.geteuid() != 0
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("a small file system cannot be mounted here")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path) -> Path:
    ballast = disk / "ballast"
    with ballast.open("wb") as file:
        try:
            while True:
                os.write(file.fileno(), bytes(4096))
        except OSError:
            return ballast


def create(client: RawClient, name: str) -> int:
    api = messages.api("create_topics")
    topic = api.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    (result,) = client.call("create_topics", 7, api.Request(topics=[topic], timeout_ms=30_000)).topics
    return int(result.error_code)


def test_administration_says_that_there_is_no_space_and_goes_on_when_there_is(
    small_disk: Path, penstock_broker_factory: Any
) -> None:
    broker = penstock_broker_factory(settings={"log.dirs": str(small_disk / "data")})
    with RawClient(broker.port) as client:
        assert create(client, "before") == 0
        ballast = fill(small_disk)
        assert create(client, "t") == ErrorCode.KAFKA_STORAGE_ERROR
        api = messages.api("create_partitions")
        more = api.Request(
            topics=[api.CreatePartitionsTopic(name="before", count=2, assignments=None)], timeout_ms=30_000
        )
        assert client.call("create_partitions", 3, more).results[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        api = messages.api("delete_topics")
        gone = api.Request(topics=[api.DeleteTopicState(name="before")], timeout_ms=30_000)
        answer = client.call("delete_topics", 6, gone).responses[0]
        assert (answer.name, answer.error_code) == ("before", ErrorCode.KAFKA_STORAGE_ERROR)

        ballast.unlink()
        assert create(client, "t") == 0
        assert client.call("create_partitions", 3, more).results[0].error_code == 0
        assert client.call("delete_topics", 6, gone).responses[0].error_code == 0
        fill(small_disk)
    broker.stop()  # in peace
