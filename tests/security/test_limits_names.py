"""Names and values that are almost right are refused with a word, and secrets are not shown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from raw_client import RawClient

import penstock
from penstock.base.settings import Settings, SettingsError
from penstock.base.settings.describe import describe_default_broker
from penstock.protocol import messages
from penstock.protocol.errors import ErrorCode as E


@pytest.fixture(scope="module")
def broker() -> Iterator[Any]:
    with penstock.Broker() as running:
        yield running


@pytest.mark.parametrize("name", ["²", "--1", "-", "٣", "9" * 5000, "1e3", " 1"])
@pytest.mark.parametrize("kind", [4, 8], ids=["broker", "logger"])
def test_odd_broker_ids_are_refused(broker: Any, name: str, kind: int) -> None:
    api = messages.api("describe_configs").load_all_versions()
    one = api.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    with RawClient(broker.port) as client:
        (result,) = client.call("describe_configs", 4, api.Request(resources=[one])).results
    assert result.error_code == E.INVALID_REQUEST
    assert len(result.error_message) < 200
    assert not result.configs


@pytest.mark.parametrize("text", ["127.0.0.1", "127.0.0.1:", "127.0.0.1:many", ":5", "127.0.0.1:-1", "127.0.0.1:²"])
def test_wrong_counts_per_address_are_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="address:count"):
        Settings.load(None, {"max.connections.per.ip.overrides": text})


def test_right_counts_per_address_are_taken() -> None:
    Settings.load(None, {"max.connections.per.ip.overrides": "127.0.0.1:5, ::1:7,localhost:0"})


def test_settings_that_nobody_knows_are_never_shown() -> None:
    (row,) = describe_default_broker({"my.plugin.password": "geheim"})
    assert row.is_sensitive
    assert row.value is None
    assert all(synonym.value is None for synonym in row.synonyms)
