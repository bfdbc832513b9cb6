"""Penstock: a distributed, replicated commit log that speaks the Kafka protocol, with data pipelines on Apache Spark.

`penstock.Broker` is the whole broker inside your program; it is loaded on first use, so importing this package is free.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.base.version import __version__

if TYPE_CHECKING:
    from penstock.broker.embedded import EmbeddedBroker as Broker

__all__ = ["Broker", "__version__"]


def __getattr__(name: str) -> Any:
    if name == "Broker":
        from penstock.broker.embedded import EmbeddedBroker

        return EmbeddedBroker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
