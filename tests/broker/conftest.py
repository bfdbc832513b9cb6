"""Brokers for the tests of this room: one shared, and fresh ones where a test changes what others would see."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock

sys.path.insert(0, str(Path(__file__).parent))  # raw_client, which these tests share


@pytest.fixture(scope="module")
def broker() -> Iterator[penstock.Broker]:
    with penstock.Broker(num_partitions=1, settings={"auto.create.topics.enable": "true"}) as running:
        yield running


@pytest.fixture
def topic() -> str:
    return f"topic-{uuid.uuid4().hex[:12]}"
