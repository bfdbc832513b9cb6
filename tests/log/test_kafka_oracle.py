"""Apache Kafka as the judge: its own tool reads our files, and we read its files."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from penstock.base.clock import ManualClock
from penstock.log import maintenance, recovery, swap
from penstock.log.cleaner import assess, build_spec
from penstock.log.compaction import compact
from penstock.log.dump import dump
from penstock.log.log import Log
from penstock.log.verify import verify
from penstock.protocol.codecs import Codec
from penstock.testing import peers
from penstock.testing.log_tools import append, commit_all, end_transaction, put, read_all, shell

pytestmark = pytest.mark.java

MakeLog = Callable[..., Log]

# What DumpLogSegments prints when something is wrong (4.3); the first record of a file whose first offset is not 0 is
# flagged in Kafka's own files, too.
COMPLAINTS = re.compile(
    r"isvalid: false|mismatch|Mismatches|invalid bytes|out of order|not found in the log|Exception|error", re.IGNORECASE
)


def judged(*arguments: str, compacted: bool = False) -> str:
    done = peers.kafka_tool("DumpLogSegments", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    gap = r"\d+" if compacted else "-1"
    expected = re.compile(rf"Non-consecutive offsets in |  (-1|{gap}) is followed by \d+$")
    assert not [line for line in done.stderr.splitlines() if not expected.match(line)], done.stderr
    bad = [line for line in done.stdout.splitlines() if COMPLAINTS.search(line)]
    assert not bad, "\n".join(bad)
    return done.stdout


def varied(log: Log, clock: ManualClock) -> None:
    """All codecs, headers, null keys and values, idempotent and transactional batches, over several segments."""
    for number in range(200):
        clock.advance(7)
        rows = [(b"key-%d" % (number % 30), None if number % 9 == 0 else b"value-%d" % number * 5) for _ in range(3)]
        put(log, *rows, codec=Codec(number % 5), epoch=number // 50)
        if number % 10 == 0:
            fields = {"producer_id": 4, "producer_epoch": 0, "base_sequence": number // 10, "transactional": True}
            append(log, (b"t", b"%d" % number), epoch=number // 50, **fields)
            commit_all(log)
            end_transaction(log, 4, commit=number % 20 == 0, epoch=number // 50)


def files_of(log: Log, suffix: str) -> str:
    paths = sorted(log.directory.glob(f"*{suffix}"))
    assert paths
    return ",".join(map(str, paths))


def test_kafka_reads_our_segments_and_indexes_without_complaint(make_log: MakeLog, clock: ManualClock) -> None:
    log = make_log(segment_bytes=6000, index_interval_bytes=400)
    varied(log, clock)
    log.flush()  # the active segment as a running broker leaves it
    assert len(log.segments) > 3
    shown = judged("--deep-iteration", "--files", files_of(log, ".log"))
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        assert f"compresscodec: {codec}" in shown
    assert shown.count("| offset:") == len(read_all(log)) + 20  # and the markers
    assert "endTxnMarker: ABORT" in shown
    maintenance.close(log, clean=True)
    judged("--files", files_of(log, ".index"))
    judged("--files", files_of(log, ".timeindex"))
    judged("--index-sanity-check", "--files", files_of(log, "index"))
    judged("--files", files_of(log, ".txnindex"))
    snapshot = judged("--files", files_of(log, ".snapshot"))
    assert "producerId: 4 producerEpoch: 0" in snapshot


def test_kafka_reads_what_compaction_and_recovery_wrote(make_log: MakeLog, clock: ManualClock) -> None:
    log = make_log(segment_bytes=6000, index_interval_bytes=400, cleanup_compact=True)
    varied(log, clock)
    candidate = assess(log, None, clock.now_ms())
    assert candidate is not None
    result = compact(build_spec(candidate, clock.now_ms(), 1_000_000, 1e300))
    swap.replace_segments(log, result.outputs)
    assert result.records_kept < result.records_read
    fresh = shell(log.directory, clock)
    fresh.update_config(log.config)
    recovery.load(fresh, clean=False, recovery_point=0, log_start_offset=0, high_watermark=log.log_end_offset)
    shown = judged("--deep-iteration", "--files", files_of(fresh, ".log"), compacted=True)
    assert "deleteHorizonMs: OptionalLong[" in shown
    judged("--files", files_of(fresh, ".index"))
    judged("--index-sanity-check", "--files", files_of(fresh, "index"))


def test_we_read_what_kafka_wrote(apache_kafka: peers.KafkaPeer) -> None:
    topic = "oracle-log"
    sent = 0
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer(
            {
                "bootstrap.servers": apache_kafka.bootstrap,
                "compression.type": codec,
                "linger.ms": 20,
                "transactional.id": f"oracle-{codec}",
            }
        )
        producer.init_transactions(30)
        for round_number in range(2):
            producer.begin_transaction()
            for number in range(300):
                producer.produce(
                    topic, b"value" * 20 + b"%d" % number, key=b"k%d" % number, partition=0, headers=[("h", b"x")]
                )
                sent += 1
            producer.flush(30)
            if round_number:
                producer.abort_transaction(30)
            else:
                producer.commit_transaction(30)
    (folder,) = apache_kafka.folder.glob(f"**/{topic}-0")
    deadline = time.monotonic() + 30
    while True:  # Kafka answers the end of a transaction before it has written the marker
        rows = list(dump(folder, records=True))
        batches = [row for row in rows if row["kind"] == "batch"]
        if sum("marker" in row for row in batches) == 10 or time.monotonic() > deadline:
            break
    assert sum(len(row.get("records", ())) for row in batches) == sent
    assert {row["codec"] for row in batches} == {"none", "gzip", "snappy", "lz4", "zstd"}
    assert [row["marker"] for row in batches if "marker" in row] == ["COMMIT", "ABORT"] * 5
    assert all(row["valid"] for row in batches)
    assert [row for row in rows if row["kind"] == "txn-index"]
    # Kafka preallocates the indexes of a running broker's active segment; apart from that there is nothing to say.
    assert [row for row in verify(folder, records=True) if "are no entry" not in row["problem"]] == []


def test_we_continue_a_log_that_kafka_began(apache_kafka: peers.KafkaPeer, tmp_path: Path, clock: ManualClock) -> None:
    topic = "oracle-continued"
    producer = Producer({"bootstrap.servers": apache_kafka.bootstrap, "enable.idempotence": True})
    for number in range(100):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(30) == 0
    (folder,) = apache_kafka.folder.glob(f"**/{topic}-0")
    shutil.copytree(folder, tmp_path / "oracle-continued-0")
    log = shell(tmp_path / "oracle-continued-0", clock)
    recovery.load(log, clean=False, recovery_point=0, log_start_offset=0, high_watermark=100)
    assert log.log_end_offset == 100
    assert [record.value for record in read_all(log)] == [b"%d" % number for number in range(100)]
    assert len(log.producers()) == 1
    assert log.topic_id is not None
    put(log, (b"k", b"ours"))
    maintenance.close(log, clean=True)
    judged("--deep-iteration", "--files", files_of(log, ".log"))
    judged("--index-sanity-check", "--files", files_of(log, "index"))
