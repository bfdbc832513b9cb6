"""Exactly once: the output records and the input offsets are one transaction. A crash in the middle leaves neither.

    python examples/exactly_once.py [--bootstrap host:port]

The restarted worker takes the same transactional id, which aborts what the dead one had begun and fences it, should it
be only slow and not dead. Readers of the output use isolation.level=read_committed.
"""

from __future__ import annotations

import sys

import common
from confluent_kafka import Producer

BATCH = 5
CRASH_AFTER = 7  # records: in the middle of the second transaction

# A member with a name of its own: when it comes back after a crash, the group gives it its partitions at once.
WORKER = {"group.instance.id": "worker", "isolation.level": "read_committed"}


def work(bootstrap: str, source: str, target: str, crash_after: int) -> None:
    consumer = common.group_consumer(bootstrap, f"{source}-exactly-once", **WORKER)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{source}-copier"})
    producer.init_transactions(30)
    consumer.subscribe([source])
    done = 0
    while not common.at_end(consumer):
        messages = consumer.consume(BATCH, 1.0)
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            producer.produce(target, message.value())
            producer.flush(30)
            done += 1
            if done == crash_after:
                common.crash()
        offsets = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 30)
        producer.commit_transaction(30)
    consumer.close()


def main() -> int:
    asked = common.arguments(__doc__)
    if asked.worker:
        work(*asked.worker[:3], int(asked.worker[3]))
        return 0
    with common.broker(asked.bootstrap) as bootstrap:
        source, target = (common.new_topic(bootstrap, name) for name in ("exactly-once-in", "exactly-once-out"))
        sent = common.feed(bootstrap, source)
        common.run_worker(bootstrap, source, target, str(CRASH_AFTER))
        common.run_worker(bootstrap, source, target, "0")
        got = common.read_all(bootstrap, target)
        lost, repeated = common.outcome(sent, got)
    print("exactly once: no record is lost, none comes twice, and the order is kept")
    return 0 if (lost, repeated) == (0, 0) and got == sent else 1


if __name__ == "__main__":
    sys.exit(main())
