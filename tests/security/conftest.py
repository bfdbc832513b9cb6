"""What the stories of this room share: the raw client of the broker's room, and certificates."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "broker"))  # raw_client

from tests.store.conftest import new_session, zookeeper

__all__ = ["new_session", "zookeeper"]
