"""The pytest plugin that comes with Penstock: the real broker as a fixture, ready in less than a second.

    def test_orders(penstock_broker):
        producer = confluent_kafka.Producer({"bootstrap.servers": penstock_broker.bootstrap})

`penstock_broker` is shared by the session's tests (name topics as you like, they do not disturb each other);
`penstock_broker_factory` starts brokers with settings of your own and stops them after the test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from penstock.broker.embedded import EmbeddedBroker


@pytest.fixture(scope="session")
def penstock_broker() -> Iterator[EmbeddedBroker]:
    """One broker for the whole run, on a free port, with a temporary folder."""
    import penstock

    with penstock.Broker() as broker:
        yield broker


@pytest.fixture
def penstock_broker_factory() -> Iterator[Callable[..., EmbeddedBroker]]:
    """`penstock_broker_factory(num_partitions=3)`: a broker of this test alone; arguments as of `penstock.Broker`."""
    import penstock

    started: list[EmbeddedBroker] = []

    def start(*arguments: Any, **settings: Any) -> EmbeddedBroker:
        broker = penstock.Broker(*arguments, **settings)
        started.append(broker)
        return broker.start()

    yield start
    for broker in started:
        broker.stop()
