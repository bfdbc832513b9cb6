"""16 MB at a time, plain and over TLS, from one broker and one Kafka."""

from __future__ import annotations

import contextlib
import ssl
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench import load, targets
from bench.load import create_topic
from bench.report import Row, alternate, at_least, at_most, warm
from bench.stage import Stage
from penstock.security.certificates import Authority
from penstock.testing.ports import free_port

SECTION = "Fetches"
TOPIC = "large"
MAX_BYTES = 16 << 20
MEGABYTES_WRITTEN = 96


@dataclass(frozen=True)
class Served:
    target: targets.Target
    tls_port: int


def fetch(side: Served, seconds: float, tls: ssl.SSLContext | None) -> dict[str, float]:
    request = load.fetch_frame(TOPIC, 0, 0, MAX_BYTES)
    with load.connect(side.target.port) as connection:
        connection.sendall(request)
        size = len(load.read_frame(connection)) + 4
    before = side.target.cpu_seconds()
    port = side.target.port if tls is None else side.tls_port
    result = load.drain_fetches(port, request, size, 1, seconds, tls)
    spent = side.target.cpu_seconds() - before
    gigabytes = result.requests * size / 1e9
    return {"rate": result.per_second * size / 1e6, "cpu": spent / gigabytes}


def rows(sides: dict[str, Served], rounds: int, seconds: float, tls: ssl.SSLContext | None = None) -> list[Row]:
    measures = {name: partial(fetch, side, seconds, tls) for name, side in sides.items()}
    warm(measures)
    seen = alternate(rounds, measures)
    ours, theirs = seen["penstock"], seen["kafka"]
    name = "fetching 16 MB at a time" + (" over TLS" if tls else "")
    return [
        at_least(SECTION, name, "MB/s", ours["rate"], theirs["rate"], 1.2),
        at_most(SECTION, f"{name}: broker CPU", "s/GB", ours["cpu"], theirs["cpu"], 1),
    ]


def trusting() -> ssl.SSLContext:
    """A client that takes any certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def tls_rows(sides: dict[str, Served], rounds: int, seconds: float) -> list[Row]:
    return rows(sides, rounds, seconds, trusting())


@contextlib.contextmanager
def both_with_tls() -> Iterator[dict[str, Served]]:
    """One broker and one Kafka, each with a plain listener and one with TLS."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name, contextlib.ExitStack() as stack:
        pem = Path(name) / "broker.pem"
        issued = Authority.create().issue("localhost", ["localhost", "127.0.0.1"])
        pem.write_bytes(issued.key + issued.certificate)
        sides = {}
        plain, tls = free_port(), free_port()
        both = f"PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{tls}"
        keys = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(pem)}
        penstock = stack.enter_context(targets.penstock_broker({"listeners": both, **keys}))
        penstock.ports[:] = [plain]
        sides["penstock"] = Served(penstock, tls)
        tls = free_port()
        both = f"PLAINTEXT://127.0.0.1:{{port}},SSL://127.0.0.1:{tls}"
        settings = {
            "listeners": both + ",CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": both,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
            **keys,
        }
        sides["kafka"] = Served(stack.enter_context(targets.kafka_broker(settings=settings)), tls)
        yield sides


@contextlib.contextmanager
def stage() -> Iterator[dict[str, Served]]:
    with both_with_tls() as sides:
        megabyte = load.produce_frame(TOPIC, 0, load.one_batch(1000, 1000))
        for side in sides.values():
            create_topic(side.target.port, TOPIC)
            for _ in range(MEGABYTES_WRITTEN):
                load.check_produce(side.target.port, megabyte)
        yield sides


STAGE = Stage({"large": rows, "large-tls": tls_rows}, stage)
