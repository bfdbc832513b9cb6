"""The short form of `penstock.testing.spark_eos --to topic`: a driver, a worker and the broker are killed with -9."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.testing.broker_process import BrokerProcess
from penstock.testing.spark_eos.topic_proof import Proof, report


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_every_input_appears_once_although_everything_is_killed(tmp_path: Path) -> None:
    proof = Proof(rows=3000, kills=3, seed=11, folder=tmp_path, kinds=("driver", "executor", "broker"))
    with BrokerProcess(tmp_path / "broker") as broker:
        outcome = proof.run(broker, broker.bootstrap)
    print(report(outcome))
    assert outcome.holds, report(outcome)
    assert {kill.split()[1] for kill in outcome.kills} == {"driver", "executor", "broker"}
