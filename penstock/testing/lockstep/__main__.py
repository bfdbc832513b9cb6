"""`python -m penstock.testing.lockstep --sequences 2000 --seed 1`: thousands of them, beside a real Kafka.

A difference prints the seed of its sequence and the steps that led to it; `--seed N --sequences 1` repeats it.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time

from penstock.broker.embedded import EmbeddedBroker
from penstock.testing import peers
from penstock.testing.lockstep.run import KINDS, TURNS, run
from penstock.testing.lockstep.sides import SETTINGS


def tell(text: str) -> None:
    print(text, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m penstock.testing.lockstep", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sequences", type=int, default=2_000)
    parser.add_argument("--kind", choices=sorted(KINDS), help="only sequences of this kind")
    arguments = parser.parse_args()
    kinds = TURNS if arguments.kind is None else (arguments.kind,)
    began = time.monotonic()
    with peers.apache_kafka(settings=SETTINGS) as kafka, EmbeddedBroker(settings=SETTINGS) as broker:
        found = asyncio.run(run(kafka.bootstrap, broker.bootstrap, arguments.seed, arguments.sequences, kinds, tell))
    asked = range(arguments.seed, arguments.seed + arguments.sequences)
    shares = {kind: sum(kinds[number % len(kinds)] == kind for number in asked) for kind in KINDS}
    each = ", ".join(f"{count} {kind}" for kind, count in shares.items() if count)
    seconds = time.monotonic() - began
    print(f"{len(asked)} sequences from seed {arguments.seed} ({each}): {len(found)} differ, {seconds:.0f} s")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
