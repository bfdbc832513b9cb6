"""Queue or publish-subscribe: consumers of one group share the records, each group gets all of them.

    python examples/queue_vs_pubsub.py [--bootstrap host:port]

In the middle one of the queue's two workers is killed; the other takes over its partitions, and nothing is lost.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter

import common

PARTITIONS = 4


def work(bootstrap: str, topic: str, group: str, crash_after: int) -> None:
    """Print what arrives. Offsets are committed record by record, so that little is done twice after a crash."""
    consumer = common.group_consumer(bootstrap, group)
    consumer.subscribe([topic])
    done = 0
    while True:
        message = consumer.poll(1.0)
        if message is None or message.error() is not None:
            continue
        print(message.value().decode(), flush=True)
        consumer.commit(message, asynchronous=False)
        done += 1
        if done == crash_after:
            common.crash()


class Worker:
    """A consumer in a process of its own."""

    def __init__(self, bootstrap: str, topic: str, group: str, crash_after: int = 0) -> None:
        self.got: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, sys.argv[0], "--worker", bootstrap, topic, group, str(crash_after)],
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("order"):
                self.got.append(line.strip())

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()


def wait_until_all(sent: list[str], workers: list[Worker]) -> None:
    wanted = set(sent)
    ticker = threading.Event()
    for _ in range(600):
        if {value for worker in workers for value in worker.got} >= wanted:
            return
        ticker.wait(0.1)
    raise TimeoutError("not all records arrived within a minute")


def main() -> int:
    asked = common.arguments(__doc__)
    if asked.worker:
        work(*asked.worker[:3], int(asked.worker[3]))
        return 0
    with common.broker(asked.bootstrap) as bootstrap:
        topic = common.new_topic(bootstrap, "queue-or-pubsub", PARTITIONS)
        sent = common.feed(bootstrap, topic, 40, PARTITIONS)

        print("queue: two workers of one group, one of them is killed after three records")
        queue = [Worker(bootstrap, topic, f"{topic}-queue", crash_after=3), Worker(bootstrap, topic, f"{topic}-queue")]
        wait_until_all(sent, queue)
        for worker in queue:
            worker.stop()
        shares = [len(worker.got) for worker in queue]
        print(f"   the workers got {shares[0]} and {shares[1]} of {len(sent)} records")
        counts = Counter(value for worker in queue for value in worker.got)

        print("publish-subscribe: two groups of one worker each")
        groups = [Worker(bootstrap, topic, f"{topic}-group-{number}") for number in range(2)]
        for worker in groups:
            wait_until_all(sent, [worker])
            worker.stop()
        print(f"   the groups got {len(groups[0].got)} and {len(groups[1].got)} of {len(sent)} records")
    queue_lost = set(sent) - set(counts)
    each_got_all = all(Counter(worker.got) == Counter(sent) for worker in groups)
    return 0 if not queue_lost and each_got_all else 1


if __name__ == "__main__":
    sys.exit(main())
