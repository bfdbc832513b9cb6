"""Protocol probes: the same requests (good, odd and bad) sent to two brokers, their answers made comparable.

A probe is a function that talks to one broker and returns plain data. `probes.run(port)` gives {probe name: answer};
running it against Apache Kafka and against Penstock and comparing the two is the oracle test.
"""

from penstock.testing.probes.harness import Session, probe, run

__all__ = ["Session", "probe", "run"]
