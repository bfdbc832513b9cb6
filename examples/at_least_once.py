"""At least once: do the work first, then commit the offsets. What was done but not committed is done again.

python examples/at_least_once.py [--bootstrap host:port]
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
    consumer = common.group_consumer(bootstrap, f"{source}-at-least-once", **WORKER)
    producer = Producer({"bootstrap.servers": bootstrap})
    consumer.subscribe([source])
    done = 0
    while not common.at_end(consumer):
        messages = consumer.consume(BATCH, 1.0)
        if not messages:
            continue
        for message in messages:
            producer.produce(target, message.value())
            producer.flush(30)
            done += 1
            if done == crash_after:
                common.crash()
        consumer.commit(asynchronous=False)  # after the work: this is the whole difference
    consumer.close()


def main() -> int:
    asked = common.arguments(__doc__)
    if asked.worker:
        work(*asked.worker[:3], int(asked.worker[3]))
        return 0
    with common.broker(asked.bootstrap) as bootstrap:
        source, target = (common.new_topic(bootstrap, name) for name in ("least-once-in", "least-once-out"))
        sent = common.feed(bootstrap, source)
        common.run_worker(bootstrap, source, target, str(CRASH_AFTER))
        common.run_worker(bootstrap, source, target, "0")
        lost, repeated = common.outcome(sent, common.read_all(bootstrap, target))
    print("at least once: no record is lost, some may come twice")
    return 0 if lost == 0 and repeated == CRASH_AFTER - BATCH else 1


if __name__ == "__main__":
    sys.exit(main())
