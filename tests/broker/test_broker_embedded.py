"""`penstock.Broker` inside a program: real, quick to start, and without a trace in its host."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from raw_client import RawClient, batch, ensure_topic, fetch_request, produce_request

import penstock
from penstock.testing.ports import free_port


def test_it_leaves_no_trace_in_its_host() -> None:
    def host_state() -> object:
        return (
            {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)},
            type(asyncio.get_event_loop_policy()),
            list(logging.getLogger().handlers),
            logging.getLogger().level,
            gc.get_threshold(),
            gc.get_freeze_count(),
            gc.isenabled(),
        )

    before = host_state()
    threads = set(threading.enumerate())
    with penstock.Broker() as broker:
        folder = broker.folder
        ensure_topic(broker.port, "t")
        assert host_state() == before
    assert host_state() == before
    assert not folder.exists()
    left = [thread for thread in threading.enumerate() if thread not in threads and thread.is_alive()]
    assert left == []


def test_a_given_folder_keeps_its_records_over_a_restart(tmp_path: Path) -> None:
    with penstock.Broker(tmp_path / "data") as broker:
        ensure_topic(broker.port, "t")
        with RawClient(broker.port) as client:
            client.call("produce", 9, produce_request("t", batch(b"kept")))
        address = broker.bootstrap
        broker.restart()
        assert broker.bootstrap == address
        with RawClient(broker.port) as client:
            answer = client.call("fetch", 12, fetch_request("t", 0))
            assert b"kept" in bytes(answer.responses[0].partitions[0].records)
    assert (tmp_path / "data" / "t-0").is_dir()


def test_settings_have_kafkas_names_with_underscores() -> None:
    with penstock.Broker(num_partitions=3, auto_create_topics_enable=True) as broker:
        ensure_topic(broker.port, "t")
        assert sorted(p.name for p in broker.folder.glob("t-*")) == ["t-0", "t-1", "t-2"]


def test_several_brokers_live_side_by_side() -> None:
    with penstock.Broker() as one, penstock.Broker() as other:
        assert one.port != other.port
        ensure_topic(one.port, "only-here")
        assert not list(other.folder.glob("only-here-*"))


def test_a_failed_start_raises_in_the_host_and_leaves_nothing(tmp_path: Path) -> None:
    with penstock.Broker(tmp_path) as running:
        threads = set(threading.enumerate())
        with pytest.raises(Exception, match="another broker"):
            penstock.Broker(tmp_path).start()
        assert set(threading.enumerate()) <= threads
        ensure_topic(running.port, "still-served")


def test_importing_the_package_and_starting_a_broker_loads_no_heavy_library() -> None:
    code = (
        "import sys, penstock\n"
        "assert not any(name.startswith('penstock.broker') for name in sys.modules)\n"
        "with penstock.Broker(): pass\n"
        "heavy = {'kio', 'pydantic', 'prometheus_client', 'kazoo', 'confluent_kafka', 'pyspark', 'typer'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr


def test_the_pytest_fixture_is_a_running_broker(penstock_broker: penstock.Broker) -> None:
    ensure_topic(penstock_broker.port, "fixture")


def test_metrics_health_and_readiness_are_served_over_http() -> None:
    port = free_port()

    def get(path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as answer:
            return str(answer.read().decode())

    with penstock.Broker(settings={"penstock.metrics.listener": f"127.0.0.1:{port}"}) as broker:
        ensure_topic(broker.port, "t")
        with RawClient(broker.port) as client:
            client.call("produce", 9, produce_request("t", batch(b"v")))
            client.call("fetch", 12, fetch_request("t", 0))
            text = get("/metrics")
        assert get("/health") == get("/ready") == "ok\n"
        values = {
            line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in text.splitlines() if line[0] != "#"
        }
        assert values['penstock_requests_total{api="Produce"}'] == 1
        assert values['penstock_request_seconds_count{api="Fetch"}'] == 1
        assert values['penstock_request_bytes_total{api="Produce"}'] > len(batch(b"v"))
        assert values['penstock_response_bytes_total{api="Fetch"}'] > len(batch(b"v"))
        assert values["penstock_produced_batches_total"] == values["penstock_produced_records_total"] == 1
        assert values['penstock_partitions{role="leader"}'] >= 1
        assert values["penstock_controller_active"] == 1
        assert values["penstock_event_loop_lag_seconds_count"] >= 0
        assert values["penstock_event_loop_lag_max_seconds"] >= 0
        with pytest.raises(urllib.error.HTTPError):
            get("/nothing")


def test_errors_are_counted_by_their_names() -> None:
    with penstock.Broker() as broker:
        with RawClient(broker.port) as client:
            client.call("produce", 9, produce_request("nowhere", batch(b"v")))
            client.call("fetch", 12, fetch_request("nowhere", 0))
        text = broker._broker.metrics.render().decode()
        assert 'penstock_request_errors_total{api="Produce",error="UNKNOWN_TOPIC_OR_PARTITION"} 1.0' in text
        assert 'penstock_request_errors_total{api="Fetch",error="UNKNOWN_TOPIC_OR_PARTITION"} 1.0' in text
