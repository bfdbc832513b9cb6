"""What acks=all costs leader and follower in CPU, beside another tree: `python -m bench.micro_cluster [old=FOLDER …]`.

Each tree gets a cluster of its own; they are measured in turns. Beside the median the least of all rounds is printed:
on a machine that is busy with other things it is the better figure, since cold caches only ever add.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from bench import load, targets
from bench.cluster_scenarios import penstock_cluster, replicated

CASES = {"one": (1, 100, 0), "hundred": (1, 100, 100), "batches": (1000, 100, 10)}
"""Records and bytes of each, and how many batches in flight (none: one after the other, with their latency)."""
ONE_AFTER_THE_OTHER = 150


@dataclass(frozen=True)
class Replicated:
    """One topic on one cluster: where its leader is, and what to send to it."""

    target: targets.Target
    port: int
    request: bytes
    answer_bytes: int
    in_flight: int

    def measure(self, seconds: float) -> dict[str, float]:
        """µs of CPU for one batch, of the leader and of one follower."""
        leader = self.target.pids[self.target.ports.index(self.port)]
        before = {pid: cpu_nanoseconds(pid) for pid in self.target.pids}
        figures = {}
        if self.in_flight:
            result = load.pipelined(self.port, self.request, self.answer_bytes, self.in_flight, seconds)
            batches, figures["per s"] = result.requests, result.per_second
        else:
            batches, times = ONE_AFTER_THE_OTHER, []
            with load.connect(self.port) as connection:
                for _ in range(batches):
                    began = time.perf_counter()
                    connection.sendall(self.request)
                    load.read_frame(connection)
                    times.append(time.perf_counter() - began)
            figures["p50 ms"] = statistics.median(times) * 1e3
        spent = {pid: (cpu_nanoseconds(pid) - before[pid]) / batches / 1e3 for pid in self.target.pids}
        all_three, of_leader = sum(spent.values()), spent[leader]
        return {"all": all_three, "leader": of_leader, "follower": (all_three - of_leader) / 2, **figures}


def cpu_nanoseconds(pid: int) -> int:
    """Finer than the clock ticks of /proc/PID/stat."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat"))


def stage(target: targets.Target, case: str) -> Replicated:
    records, value_bytes, in_flight = CASES[case]
    port = replicated(target, case)
    request = load.produce_frame(case, 0, load.one_batch(records, value_bytes), acks=-1)
    return Replicated(target, port, request, load.check_produce(port, request), in_flight)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.micro_cluster", description=__doc__)
    parser.add_argument("trees", nargs="*", default=["here=."], help="name=folder of a checked-out tree")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=0.7)
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        clusters = {}
        for tree in options.trees:
            name, _, folder = tree.partition("=")
            with contextlib.chdir(Path(folder)):
                clusters[name] = stack.enter_context(penstock_cluster(watched=False))
        for case in options.cases.split(","):
            sides = [(name, stage(cluster, case)) for name, cluster in clusters.items()]
            seen: dict[str, list[dict[str, float]]] = {name: [] for name in clusters}
            for number in range(options.rounds):
                for name, side in sides if number % 2 else reversed(sides):
                    seen[name].append(side.measure(options.seconds))
            for name, figures in seen.items():
                print(f"{case:8} {name:6}", "  ".join(_spread(key, figures) for key in figures[0]), flush=True)


def _spread(key: str, figures: list[dict[str, float]]) -> str:
    values = [figure[key] for figure in figures]
    return f"{key}: {statistics.median(values):.4g} ({min(values):.4g}–{max(values):.4g})"


if __name__ == "__main__":
    main()
