"""The stores of the contract tests, for stories of whole clusters."""

from __future__ import annotations

from tests.store.conftest import new_session, zookeeper

__all__ = ["new_session", "zookeeper"]
