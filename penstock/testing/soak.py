"""The soak: every kind of load at once on a broker with everything on, for as long as it is told: `make prove-soak`.

TLS, SCRAM, ACLs, quotas, transactions, both kinds of groups, compaction, retention, clients that come and go and some
that may not. Memory, descriptors and threads are sampled; at the end all must be flat, and nothing may have failed.
Segments are small, so that retention and compaction go round many times and the steady state begins within minutes;
the pace leaves three quarters of a core to others.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from penstock.security.certificates import Authority, write_private
from penstock.testing import peers
from penstock.testing.broker_process import BrokerProcess
from penstock.testing.ports import free_port
from penstock.testing.soak_load import LOADS, Load, Place, prepare
from penstock.testing.soak_page import Facts, page, picture

SAMPLE_SECONDS = 5.0
GROWTH = 1.03  # of the last quarter's median over the second quarter's
GROWTH_BYTES = 2_000_000  # below these it is not growth: an allocator's habit, a segment more, a client less
GROWTH_DESCRIPTORS = 3
GROWTH_THREADS = 2
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
_SEGMENT = re.compile(r"/(?P<topic>[^/]+)-\d+/\d{20}\.log(\.deleted)?(?P<deleted>( \(deleted\))?)$")


@dataclass(frozen=True)
class Sample:
    seconds: float
    resident_bytes: int
    descriptors: dict[str, int]  # by what they are open on
    threads: int
    cpu_seconds: float


def sample(pid: int, began: float) -> Sample:
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return Sample(
        time.monotonic() - began,
        peers.process_resident_bytes(pid),
        open_descriptors(pid),
        len(list(Path(f"/proc/{pid}/task").iterdir())),
        sum(map(int, ticks)) / CLOCK_TICKS,
    )


def open_descriptors(pid: int) -> dict[str, int]:
    """How many are open on segments of each topic, on sockets and on the rest."""
    found: Counter[str] = Counter()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since it was listed
            target = str(entry.readlink())
            segment = _SEGMENT.search(target)
            if segment is not None:
                found[segment["topic"] + segment["deleted"]] += 1
            else:
                found["sockets" if target.startswith("socket:") else "the rest"] += 1
    return dict(found)


def quarters(values: list[float]) -> tuple[float, float]:
    """The medians of the second quarter, when everything is under way, and of the last one."""
    quarter = max(len(values) // 4, 1)
    return statistics.median(values[quarter : 2 * quarter] or values), statistics.median(values[-quarter:])


def grown(values: list[float], least: float) -> bool:
    before, after = quarters(values)
    return after > before * GROWTH and after - before > least


def findings(samples: list[Sample], loads: list[Load], log: str) -> list[str]:
    found = [f"{load.name}: {error}" for load in loads for error in load.errors[:3]]
    found += [f"{load.name} did nothing" for load in loads if not load.done]
    found += [line for line in log.splitlines() if " ERROR " in line or "Traceback" in line][:5]
    if grown([one.resident_bytes for one in samples], GROWTH_BYTES):
        found.append("memory grows")
    if grown([sum(one.descriptors.values()) for one in samples], GROWTH_DESCRIPTORS):
        found.append("descriptors grow")
    if grown([one.threads for one in samples], GROWTH_THREADS):
        found.append("threads grow")
    return found


def secured_settings(folder: Path, port: int) -> dict[str, str]:
    authority = Authority.create()
    (folder / "ca.pem").write_bytes(authority.certificate)
    write_private(folder / "server.pem", authority.issue("localhost", ("localhost", "127.0.0.1")).both)
    return {
        "listeners": f"SASL_SSL://127.0.0.1:{port}",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule "
        'required user_admin="admin of the soak";',
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "server.pem"),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
        "auto.create.topics.enable": "false",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.num.partitions": "4",
        "offsets.topic.segment.bytes": "1048576",
        "transaction.state.log.segment.bytes": "1048576",
        "log.retention.check.interval.ms": "5000",
        "log.cleaner.backoff.ms": "2000",
        "connection.failed.authentication.delay.ms": "100",
        "connections.max.reauth.ms": "60000",
    }


def run(minutes: float, folder: Path) -> tuple[list[Sample], list[Load], list[str]]:
    port = free_port()
    with BrokerProcess(folder, secured_settings(folder, port), port=port) as broker:
        place = Place(f"127.0.0.1:{port}", str(folder / "ca.pem"))
        prepare(place)
        loads = [kind(place) for kind in LOADS]
        for load in loads:
            load.start()
        began, samples = time.monotonic(), []
        while (now := time.monotonic()) - began < minutes * 60:
            samples.append(sample(broker.pid, began))
            time.sleep(min(SAMPLE_SECONDS, max(began + minutes * 60 - now, 0.1)))
        for load in loads:
            load.stopping.set()
        for load in loads:
            load.join(60)
            if load.is_alive():
                load.errors.append("does not end")
        log = broker.log_file.read_text(errors="replace")
    return samples, loads, findings(samples, loads, log)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--record", type=Path, help="a folder for the page and its picture")
    options = parser.parse_args(arguments)
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        samples, loads, found = run(options.minutes, Path(folder))
    curves: dict[str, list[float]] = {
        "memory, MB": [one.resident_bytes / 1e6 for one in samples],
        "descriptors": [sum(one.descriptors.values()) for one in samples],
        "threads": [one.threads for one in samples],
    }
    kinds = sorted({kind for one in samples for kind in one.descriptors})
    first, last = samples[0], samples[-1]
    facts = Facts(
        options.minutes,
        [(load.name, load.done, len(load.errors)) for load in loads],
        [(name, *quarters(values), max(values)) for name, values in curves.items()],
        {kind: quarters([one.descriptors.get(kind, 0) for one in samples]) for kind in kinds},
        100 * (last.cpu_seconds - first.cpu_seconds) / max(last.seconds - first.seconds, 1.0),
        found,
        (load_before, os.getloadavg()[0]),
    )
    text = page(facts)
    print(text)
    if options.record is not None:
        (options.record / "soak.md").write_text(text, encoding="utf-8")
        figures = list(zip([one.seconds for one in samples], curves["memory, MB"], curves["descriptors"], strict=True))
        (options.record / "soak.svg").write_text(picture(figures), encoding="utf-8")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
