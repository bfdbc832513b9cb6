"""The most used client on one broker beside one Kafka: what its gigabytes cost, how long a message takes."""

from __future__ import annotations

import threading
import time

from bench import targets
from bench.load import create_topic
from bench.report import Row, alternate, at_most

SECTION = "One broker"
RECORDS = 3_000_000


def librdkafka_rows(pair: tuple[targets.Target, targets.Target], rounds: int, seconds: float) -> list[Row]:
    """Broker CPU for what the most used client really sends."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    records = RECORDS
    value = b"x" * 100
    gigabytes = records * 100 / 1e9
    topics = {"n": 0}

    def produce_and_fetch(target: targets.Target) -> dict[str, float]:
        topics["n"] += 1
        topic = f"librdkafka-{topics['n']}"
        create_topic(target.port, topic)
        producer = Producer(
            {"bootstrap.servers": target.bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000}
        )
        before = target.cpu_seconds()
        for number in range(records):
            try:
                producer.produce(topic, value)
            except BufferError:
                producer.poll(0.1)
                producer.produce(topic, value)
            if number % 10_000 == 0:
                producer.poll(0)
        producer.flush(60)
        produced = target.cpu_seconds() - before
        consumer = Consumer({"bootstrap.servers": target.bootstrap, "group.id": "bench", "enable.auto.commit": False})
        consumer.assign([TopicPartition(topic, 0, 0)])
        before = target.cpu_seconds()
        seen = 0
        while seen < records:
            seen += len(consumer.consume(10_000, 1.0))
        fetched = target.cpu_seconds() - before
        consumer.close()
        return {"produced": produced / gigabytes, "fetched": fetched / gigabytes}

    seen = alternate(min(rounds, 3), {t.name: lambda t=t: produce_and_fetch(t) for t in pair})  # type: ignore[misc]
    return [
        at_most(SECTION, f"librdkafka, 100-byte records, {what}: broker CPU", "s/GB",
                seen["penstock"][what], seen["kafka"][what], times)
        for what, times in (("produced", 1 / 4), ("fetched", 1 / 2))
    ]  # fmt: skip


def latency_rows(pair: tuple[targets.Target, targets.Target], rounds: int, seconds: float) -> list[Row]:
    """End to end at 2,000 messages/s: a producer and a consumer of librdkafka in this process."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    def end_to_end(target: targets.Target) -> dict[str, float]:
        topic = f"latency-{time.time_ns()}"
        create_topic(target.port, topic)
        producer = Producer({"bootstrap.servers": target.bootstrap, "linger.ms": 0, "acks": 1})
        consumer = Consumer({"bootstrap.servers": target.bootstrap, "group.id": "b", "enable.auto.commit": False,
                             "fetch.wait.max.ms": 100})  # fmt: skip
        consumer.assign([TopicPartition(topic, 0, 0)])
        delays: list[float] = []
        total = int(2000 * seconds)

        def consume() -> None:
            while len(delays) < total:
                message = consumer.poll(2.0)
                if message is not None and message.error() is None:
                    delays.append(time.perf_counter() - float(message.value()))

        reader = threading.Thread(target=consume)
        reader.start()
        began = time.perf_counter()
        for number in range(total):
            due = began + number / 2000
            while (wait := due - time.perf_counter()) > 0:
                producer.poll(min(wait, 0.0005))
            producer.produce(topic, repr(time.perf_counter()).encode())
        producer.flush(10)
        reader.join(30)
        consumer.close()
        settled = sorted(delays[len(delays) // 5 :])
        return {"p50": settled[len(settled) // 2] * 1e3, "p99": settled[int(len(settled) * 0.99)] * 1e3}

    seen = alternate(rounds, {t.name: lambda t=t: end_to_end(t) for t in pair}, fresh_memory=False)  # type: ignore[misc]
    return [
        at_most(
            SECTION,
            f"end to end at 2,000 messages/s, {figure}",
            "ms",
            seen["penstock"][figure],
            seen["kafka"][figure],
            times,
        )
        for figure, times in (("p50", 1), ("p99", 1 / 4))
    ]
