"""A long poll whose answer runs into a bug: its client hears of it, others go on."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from raw_client import RawClient, batch, ensure_topic, fetch_request, produce_request, request_frame

import penstock
from penstock.broker.api.fetch import FetchHandler


def test_a_long_poll_that_cannot_be_answered_closes_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("a bug of ours")

    with penstock.Broker() as broker, RawClient(broker.port) as reader, RawClient(broker.port) as writer:
        ensure_topic(broker.port, "quiet")
        reader.send(request_frame("fetch", 11, fetch_request("quiet", 0, max_wait_ms=600_000)))
        writer.call("produce", 9, produce_request("other", batch(b"x")))  # by now the poll is parked
        monkeypatch.setattr(FetchHandler, "answer_parked", broken)
        with monkeypatch.context() as patched:
            patched.setattr(logging.getLogger("penstock.broker.api.fetch"), "disabled", True)
            answer = writer.call("produce", 9, produce_request("quiet", batch(b"x")))
            assert answer.responses[0].partition_responses[0].error_code == 0
            assert reader.is_closed()  # instead of silence for ten minutes
