"""The exactly-once proofs on Spark, with everything killed with -9.

    python -m penstock.testing.spark_eos --rows 300000 --kills 44 --seed 7
    python -m penstock.testing.spark_eos --to topic --rows 2000000 --kills 30 --seed 7

The first one goes to a topic, Delta, Iceberg and PostgreSQL, the second one to a topic, through a step that never gives
the same twice. The seed, the kills and what was found are printed; the exit code says whether it held. With --kafka the
second one runs against Apache Kafka. If it did not hold, the folder with all logs stays.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from penstock.testing import peers
from penstock.testing.broker_process import BrokerProcess
from penstock.testing.spark_eos.everywhere import EverywhereProof
from penstock.testing.spark_eos.topic_proof import Proof, report


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m penstock.testing.spark_eos", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--to", choices=("everywhere", "topic"), default="everywhere")
    parser.add_argument("--rows", type=int, default=None)
    parser.add_argument("--kills", type=int, default=None)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--batch", type=int, default=None, help="rows per batch, of --to everywhere")
    parser.add_argument("--master", default="local[2,8]", help="of --to topic; local-cluster[2,1,600] has executors")
    parser.add_argument("--kafka", action="store_true", help="--to topic against Apache Kafka, in fall-back mode")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))  # whoever is ended leaves nothing running
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(1 << 31)
    is_topic = given.to == "topic" or given.kafka
    rows = given.rows if given.rows is not None else 2_000_000 if is_topic else 300_000
    kills = given.kills if given.kills is not None else 30 if is_topic else 44
    folder = Path(tempfile.mkdtemp(prefix="penstock-eos-"))
    print(f"seed {seed}, {rows} rows, {kills} kills, in {folder}", flush=True)
    if is_topic:
        holds = _to_topic(folder, rows, kills, seed, given.master, is_kafka=given.kafka)
    else:
        outcome = EverywhereProof(rows=rows, kills=kills, seed=seed, folder=folder, rows_per_batch=given.batch).run()
        print(outcome.report())
        holds = outcome.holds
    if holds:
        shutil.rmtree(folder)
    return 0 if holds else 1


def _to_topic(folder: Path, rows: int, kills: int, seed: int, master: str, *, is_kafka: bool) -> bool:
    kinds = ("driver", "executor") if is_kafka else ("driver", "executor", "broker")
    proof = Proof(rows=rows, kills=kills, seed=seed, folder=folder, kinds=kinds, master=master)
    if is_kafka:
        with peers.apache_kafka() as kafka:
            outcome = proof.run(None, kafka.bootstrap)
    else:
        with BrokerProcess(folder / "broker") as broker:
            outcome = proof.run(broker, broker.bootstrap)
    print(report(outcome))
    return outcome.holds and len(outcome.kills) >= kills


if __name__ == "__main__":
    sys.exit(main())
