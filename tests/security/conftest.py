"""What the stories of this room share: the raw client of the broker's room, certificates, and secured brokers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from penstock.security.certificates import Authority
from tests.security.pki import Pki
from tests.store.conftest import new_session, zookeeper

sys.path.insert(0, str(Path(__file__).parents[1] / "broker"))  # raw_client

__all__ = ["new_session", "zookeeper"]


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    folder = tmp_path_factory.mktemp("pki")
    found = Pki(folder, Authority.create())
    (folder / "ca.pem").write_bytes(found.authority.certificate)
    return found
