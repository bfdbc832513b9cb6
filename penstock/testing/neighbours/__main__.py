"""`python -m penstock.testing.neighbours [NAME…]`: each neighbour in turn, its verdict in a line.

Exit code 0: all keep their promise; 1: one does not; 2: none was wrong, but one could not be fetched and is unproven.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from penstock.testing import peers
from penstock.testing.neighbours import connect, flink, mirror, spark, storm, streams
from penstock.testing.neighbours.harness import Verdict, World

# name → (what runs, brokers, records unless asked otherwise)
NEIGHBOURS = {
    "flink-incrementing": (flink.incrementing, 3, 20_000),
    "flink-pooling": (flink.pooling, 3, 20_000),
    "streams": (streams.run, 3, 0),  # its smoke test writes what it wants
    "connect-standalone": (connect.standalone, 1, 2_000),
    "connect-distributed": (connect.distributed, 3, 4_000),
    "mirror": (mirror.run, 1, 10_000),
    "storm": (storm.run, 1, 10_000),
    "spark": (spark.run, 1, 20_000),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m penstock.testing.neighbours", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NEIGHBOURS)}; all unless given")
    parser.add_argument("--records", type=int, help="for each neighbour")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="leave logs and data there")
    asked = parser.parse_args()
    unknown = [name for name in asked.names if name not in NEIGHBOURS]
    if unknown:
        parser.error(f"no neighbour {unknown[0]!r}: one of {', '.join(NEIGHBOURS)}")
    codes = []
    for name in asked.names or NEIGHBOURS:
        if asked.keep is not None:
            folder = asked.keep / name
            folder.mkdir(parents=True)
            codes.append(prove(name, folder, asked.records, asked.seed))
        else:
            with tempfile.TemporaryDirectory(prefix=f"penstock-{name}-") as made:
                codes.append(prove(name, Path(made), asked.records, asked.seed))
    return 1 if 1 in codes else max(codes)


def prove(name: str, folder: Path, records: int | None, seed: int) -> int:
    run, brokers, usual = NEIGHBOURS[name]
    began = time.monotonic()
    try:
        with World(folder, brokers, records or usual, seed) as world:
            try:
                verdict = run(world)
            except (RuntimeError, TimeoutError) as error:
                verdict = Verdict("comes to its end", [str(error)])
    except peers.PeerUnavailable as reason:
        print(f"{name}: NOT PROVEN, it cannot be had here: {reason}", flush=True)
        return 2
    killed = ", ".join(f"{what} {count} ×" for what, count in sorted(world.kills.items())) or "nothing"
    print(f"{name}: {verdict.figures or 'no figures'}; killed: {killed}; {time.monotonic() - began:.0f} s", flush=True)
    for problem in verdict.problems:
        print(f"  WRONG: {problem}", flush=True)
    if not verdict.problems:
        print(f"  as it should be: {verdict.promise}", flush=True)
    return 1 if verdict.problems else 0


if __name__ == "__main__":
    sys.exit(main())
