"""At most once: commit the offsets first, then do the work. What was in work when the worker died is lost.

python examples/at_most_once.py [--bootstrap host:port]
"""

from __future__ import annotations

import sys

import common
from confluent_kafka import Producer

BATCH = 5
CRASH_AFTER = 7  # records: in the middle of the second batch

# A member with a name of its own: when it comes back after a crash, the group gives it its partitions at once.
WORKER = {"group.instance.id": "worker"}


def work(bootstrap: str, source: str, target: str, crash_after: int) -> None:
    consumer = common.group_consumer(bootstrap, f"{source}-at-most-once", **WORKER)
    producer = Producer({"bootstrap.servers": bootstrap})
    consumer.subscribe([source])
    done = 0
    while not common.at_end(consumer):
        messages = consumer.consume(BATCH, 1.0)
        if not messages:
            continue
        consumer.commit(asynchronous=False)  # before the work: this is the whole difference
        for message in messages:
            producer.produce(target, message.value())
            producer.flush(30)
            done += 1
            if done == crash_after:
                common.crash()
    consumer.close()


def main() -> int:
    asked = common.arguments(__doc__)
    if asked.worker:
        work(*asked.worker[:3], int(asked.worker[3]))
        return 0
    with common.broker(asked.bootstrap) as bootstrap:
        source, target = (common.new_topic(bootstrap, name) for name in ("most-once-in", "most-once-out"))
        sent = common.feed(bootstrap, source)
        common.run_worker(bootstrap, source, target, str(CRASH_AFTER))
        common.run_worker(bootstrap, source, target, "0")
        lost, repeated = common.outcome(sent, common.read_all(bootstrap, target))
    print("at most once: records may be lost, none comes twice")
    return 0 if lost == 2 * BATCH - CRASH_AFTER and repeated == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
