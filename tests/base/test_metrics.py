"""Metrics: numbers are counted without labels being looked up, shown as Prometheus reads them, served over HTTP."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.base.metrics import METRICS, Metrics
from penstock.base.metrics_server import parse_address, start_metrics_server


def _samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families(metrics.render().decode())
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for f in families for s in f.samples}


def test_counters_gauges_and_histograms_come_out_as_prometheus_text() -> None:
    metrics = Metrics()
    produce = metrics.cell("requests", "produce")
    produce.value += 2
    metrics.cell("requests_in_flight").value = 7
    seconds = metrics.histogram("request_seconds", "produce")
    for value in (0.00005, 0.002, 99.0):
        seconds.observe(value)
    shown = _samples(metrics)
    api = ("api", "produce")
    assert shown[("penstock_requests_total", (api,))] == 2
    assert shown[("penstock_requests_in_flight", ())] == 7
    assert shown[("penstock_request_seconds_bucket", (api, ("le", "0.0001")))] == 1
    assert shown[("penstock_request_seconds_bucket", (api, ("le", "0.0025")))] == 2
    assert shown[("penstock_request_seconds_bucket", (api, ("le", "+Inf")))] == 3
    assert shown[("penstock_request_seconds_count", (api,))] == 3


def test_a_gauge_may_be_asked_for_when_somebody_looks() -> None:
    metrics = Metrics()
    sizes = {"a": 1.0}
    metrics.source("log_size_bytes", lambda: [((name,), size) for name, size in sizes.items()])
    assert _samples(metrics)[("penstock_log_size_bytes", (("directory", "a"),))] == 1
    sizes["a"] = 5.0
    assert _samples(metrics)[("penstock_log_size_bytes", (("directory", "a"),))] == 5


def test_a_metric_that_is_not_on_the_list_or_has_other_labels_is_a_mistake() -> None:
    metrics = Metrics()
    with pytest.raises(KeyError):
        metrics.cell("made_up")
    with pytest.raises(ValueError, match="labels"):
        metrics.cell("requests")
    with pytest.raises(ValueError, match="histogram"):
        metrics.cell("request_seconds", "produce")
    with pytest.raises(ValueError, match="histogram"):
        metrics.source("request_seconds", list)


def test_two_brokers_in_one_process_do_not_share_numbers() -> None:
    one, other = Metrics(), Metrics()
    one.cell("produced_bytes").value += 1
    assert other.cell("produced_bytes").value == 0


def test_the_list_names_each_metric_once() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)


async def _get(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer


def test_metrics_health_and_readiness_are_served() -> None:
    async def story() -> None:
        ready = False
        server = await start_metrics_server(Metrics(), "127.0.0.1", 0, lambda: True, lambda: ready)
        port = server.sockets[0].getsockname()[1]
        async with server:
            assert b"penstock_requests_total" in await _get(port, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await _get(port, b"GET /health HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.1 200")
            assert (await _get(port, b"GET /ready HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.1 503")
            ready = True
            assert (await _get(port, b"GET /ready?x=1 HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.1 200")
            assert (await _get(port, b"GET /else HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.1 404")
            assert (await _get(port, b"POST /metrics HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.1 405")
            assert (await _get(port, b"A" * 100_000 + b"\r\n\r\n")) == b""

    asyncio.run(story())


def test_the_address_is_host_and_port() -> None:
    assert parse_address("127.0.0.1:9101") == ("127.0.0.1", 9101)
    assert parse_address("http://[::1]:9101") == ("::1", 9101)
    with pytest.raises(ValueError, match="host:port"):
        parse_address("9101x")
