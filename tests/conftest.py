"""What every test may use: skips that say why, and real peers."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from penstock.testing import peers

# How long an example takes says how busy the machine is, not whether the code is right.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("java"):
        try:
            peers.kafka_jars()
            peers.java()
        except peers.PeerUnavailable as reason:
            pytest.skip(str(reason))


@pytest.fixture
def own_apache_kafka() -> Iterator[peers.KafkaPeer]:
    """A real Apache Kafka in which nothing has happened yet, for a story that looks at the whole of it."""
    yield from _apache_kafka_or_skip()


@pytest.fixture(scope="session")
def apache_kafka() -> Iterator[peers.KafkaPeer]:
    """A real Apache Kafka, as oracle (one for the whole session)."""
    yield from _apache_kafka_or_skip()


def _apache_kafka_or_skip() -> Iterator[peers.KafkaPeer]:
    try:
        with peers.apache_kafka() as kafka:
            yield kafka
    except peers.PeerUnavailable as reason:
        pytest.skip(str(reason))


class _Bugs(logging.Handler):
    """Requests that ran into an exception and took their connection with them (`penstock_request_exceptions`)."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and str(record.msg).startswith("closing client="):
            self.seen.append(f"{record.getMessage()}: {record.exc_info[1]!r}")


@pytest.fixture(autouse=True)
def no_request_breaks_its_connection() -> Iterator[None]:
    """Whatever a test sends to a broker of this process, a well-formed request is answered."""
    bugs = _Bugs()
    logger = logging.getLogger("penstock.broker")
    logger.addHandler(bugs)
    yield
    logger.removeHandler(bugs)
    assert bugs.seen == []
