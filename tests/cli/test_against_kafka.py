"""The same commands against Apache Kafka and against Penstock print the same."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from penstock.testing import peers

STORY = (
    "penstock topic create orders --partitions 2 --replicas 1 --config retention.ms=86400000",
    "penstock topic create orders",
    "penstock topic list",
    "printf 'a:1\\nb:2\\nc:3\\nd:\\n' | penstock produce orders -K : -Z --header h=1 --partition 1",
    "penstock consume orders -B -e --format '%t %p %o %k=%s %h %K %S\\n'",
    "penstock consume orders -B -e --filter 'int(value) >= 2' --keys-only",
    "penstock consume orders -B -e --group shop",
    "penstock group list",
    "penstock group describe shop",
    "penstock group reset shop --shift -2 --yes",
    "penstock group describe shop",
    "penstock topic alter orders --config max.message.bytes=5000 --reset retention.ms",
    "penstock config get topic:orders max.message.bytes retention.ms",
    "penstock config set topic:orders cleanup.policy=nonsense",
    "penstock config get topic:nothing",
    "penstock topic add-partitions orders 3",
    "penstock topic trim orders --offset 1:2 --yes",
    "penstock topic describe orders",
    "penstock consume orders -B -e",
    "echo x | penstock produce orders --transactional --partition 0",
    "penstock txn list | cut -d' ' -f1 | tail -n 1 | sed 's/[0-9]*$//'",
    "penstock partition status",
    "penstock partition elect --topic orders",
    "penstock group delete shop --yes",
    "penstock group describe shop",
    "penstock topic delete orders --yes",
    "penstock topic list",
)


def tell(bootstrap: str, folder: Path) -> list[str]:
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder),
        "PENSTOCK_BOOTSTRAP": bootstrap,
    }
    answers = []
    for line in STORY:
        done = subprocess.run(
            ["bash", "-c", line], capture_output=True, text=True, env=environment, cwd=folder, timeout=120
        )
        answers.append(f"$ {line}\n[{done.returncode}] {_without_identities(done.stdout + done.stderr)}")
    return answers


def _without_identities(text: str) -> str:
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "<id>", text)
    text = re.sub(r"(rdkafka|penstock-cli)-<id>", "<member>", text)
    text = re.sub(r"[\d.]+(?= +- +-$)", "<seconds>", text, flags=re.MULTILINE)  # age of a lagging record
    # What a broker says beside its error code is its own wording.
    text = re.sub(r"(?m)^penstock: .*$", "penstock: <message>", text)
    return re.sub(r" +", " ", text)


@pytest.mark.java
def test_the_same_commands_print_the_same(own_apache_kafka: peers.KafkaPeer, tmp_path: Path) -> None:
    with penstock.Broker(settings={"group.initial.rebalance.delay.ms": "0", "broker.id": "1"}) as broker:
        ours = tell(broker.bootstrap, tmp_path)
    assert ours == tell(own_apache_kafka.bootstrap, tmp_path)
