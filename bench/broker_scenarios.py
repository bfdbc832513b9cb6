"""One broker beside one Kafka: produce, fetch, latency, start and memory."""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import time
from pathlib import Path

from bench import load, targets
from bench.report import Row, absolute, alternate, at_least, at_most
from penstock.log.producer_snapshot import write_snapshot
from penstock.protocol import messages

SECTION = "One broker"
SEALED_OFFSETS = 1_000_000  # how many a partition with history has behind it


def create_topic(port: int, name: str, partitions: int = 1, replication: int = 1, **configs: str) -> None:
    api = messages.api("create_topics")
    wanted = api.request_struct("CreatableTopic")(name=name, num_partitions=partitions, replication_factor=replication)
    config = api.request_struct("CreatableTopicConfig")
    wanted.configs = [config(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    answer = load.call(port, "create_topics", 5, api.Request(topics=[wanted], timeout_ms=30_000))
    error = answer.topics[0].error_code  # type: ignore[attr-defined]
    if error not in (0, 36):
        raise RuntimeError(f"creating {name} answered error {error}")


def measured(target: targets.Target, work: object) -> dict[str, float]:
    before = target.cpu_seconds()
    result = work()  # type: ignore[operator]
    spent = target.cpu_seconds() - before
    return {"rate": result.per_second, "cpu": spent / result.requests * 1e6}


def produce_rows(penstock: targets.Target, kafka: targets.Target, rounds: int, seconds: float) -> list[Row]:
    rows = []
    small, large = load.one_batch(1, 100), load.one_batch(1000, 100)
    cases = (
        ("one-record produce, 100 in flight, one connection", small, 100, 0, 4, 1 / 3),
        ("one-record produce, 64 connections", small, 0, 64, 1.3, 1 / 2),
        ("100 KB batches, 10 in flight", large, 10, 0, 2.5, None),
    )
    for number, (name, batch, in_flight, connections, times, cpu_times) in enumerate(cases):
        topic = f"produce-{number}"
        sides = {}
        for target in (penstock, kafka):
            create_topic(target.port, topic)
            request = load.produce_frame(topic, 0, batch)
            size = load.check_produce(target.port, request)

            def work(target=target, request=request, size=size, in_flight=in_flight, connections=connections):  # type: ignore[no-untyped-def]
                if connections:
                    return load.many_connections(target.port, request, size, connections, seconds)
                return load.pipelined(target.port, request, size, in_flight, seconds)

            work()  # warm: Kafka's JIT gets as much
            sides[target.name] = lambda target=target, work=work: measured(target, work)  # type: ignore[misc]
        seen = alternate(rounds, sides)
        if cpu_times is None:
            scale = len(batch) / 1e6
            rows.append(
                at_least(SECTION, name, "MB/s", seen["penstock"]["rate"] * scale, seen["kafka"]["rate"] * scale, times)
            )
            continue
        rows.append(at_least(SECTION, name, "requests/s", seen["penstock"]["rate"], seen["kafka"]["rate"], times))
        rows.append(
            at_most(
                SECTION, f"{name}: broker CPU", "µs/request", seen["penstock"]["cpu"], seen["kafka"]["cpu"], cpu_times
            )
        )
    return rows


def fetch_rows(penstock: targets.Target, kafka: targets.Target, rounds: int, seconds: float) -> list[Row]:
    rows = []
    large = load.one_batch(1000, 1000)
    for target in (penstock, kafka):
        for topic, batch, count in (("fetch-large", large, 96), ("fetch-small", load.one_batch(1, 900), 1)):
            create_topic(target.port, topic)
            request = load.produce_frame(topic, 0, batch)
            for _ in range(count):
                load.check_produce(target.port, request)
    for name, topic, max_bytes, in_flight, times in (
        ("fetching 16 MB at a time", "fetch-large", 16 << 20, 1, 1.0),
        ("fetching 1 KB at a time", "fetch-small", 1024, 10, 2.0),
    ):
        sides = {}
        sizes = {}
        for target in (penstock, kafka):
            request = load.fetch_frame(topic, 0, 0, max_bytes)
            with load.connect(target.port) as connection:
                connection.sendall(request)
                sizes[target.name] = len(load.read_frame(connection)) + 4

            def work(target=target, request=request, in_flight=in_flight, sizes=sizes):  # type: ignore[no-untyped-def]
                return load.drain_fetches(target.port, request, sizes[target.name], in_flight, seconds)

            work()
            sides[target.name] = lambda target=target, work=work: measured(target, work)  # type: ignore[misc]
        seen = alternate(rounds, sides)
        if max_bytes > 100_000:
            megabytes = {side: seen[side]["rate"] * sizes[side] / 1e6 for side in seen}
            rows.append(at_least(SECTION, name, "MB/s", megabytes["penstock"], megabytes["kafka"], times))
        else:
            rows.append(at_least(SECTION, name, "requests/s", seen["penstock"]["rate"], seen["kafka"]["rate"], times))
    return rows


def librdkafka_rows(penstock: targets.Target, kafka: targets.Target, rounds: int, records: int) -> list[Row]:
    """Broker CPU for what the most used client really sends."""
    from confluent_kafka import Consumer, Producer, TopicPartition

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

    seen = alternate(rounds, {t.name: lambda t=t: produce_and_fetch(t) for t in (penstock, kafka)})  # type: ignore[misc]
    return [
        at_most(SECTION, f"librdkafka, 100-byte records, {what}: broker CPU", "s/GB",
                seen["penstock"][what], seen["kafka"][what], times)
        for what, times in (("produced", 1 / 4), ("fetched", 1 / 2))
    ]  # fmt: skip


def latency_rows(penstock: targets.Target, kafka: targets.Target, rounds: int, seconds: float) -> list[Row]:
    """End to end at 2,000 messages/s: a producer and a consumer of librdkafka in this process."""
    import threading

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

    seen = alternate(rounds, {t.name: lambda t=t: end_to_end(t) for t in (penstock, kafka)})  # type: ignore[misc]
    return [
        at_most(
            SECTION,
            f"end to end at 2,000 messages/s, {figure}",
            "ms",
            seen["penstock"][figure],
            seen["kafka"][figure],
            1,
        )
        for figure in ("p50", "p99")
    ]


def start_rows(rounds: int) -> list[Row]:
    """From starting the process to the first acknowledged record, and memory while idle."""
    starts: dict[str, list[float]] = {"penstock": [], "kafka": []}
    memory: dict[str, list[float]] = {"penstock": [], "kafka": []}
    request = load.produce_frame("first", 0, load.one_batch(1, 100))
    with targets.penstock_broker() as target:  # compiles the modules that no earlier start has loaded
        create_topic(target.port, "first")
    for _ in range(rounds):
        for name, start in (("penstock", targets.penstock_broker), ("kafka", targets.kafka_broker)):
            began = time.perf_counter()
            with start() as target:
                formatting = 0.0
                if name == "kafka":
                    began = time.perf_counter() - target.start_seconds + formatting
                create_topic(target.port, "first")
                load.check_produce(target.port, request)
                starts[name].append(time.perf_counter() - began)
                time.sleep(2)
                memory[name].append(target.resident_megabytes())
    median = {name: statistics.median(values) for name, values in starts.items()}
    resident = {name: statistics.median(values) for name, values in memory.items()}
    return [
        at_most(SECTION, "start to first acknowledged record", "s", median["penstock"], median["kafka"], 1 / 8),
        at_most(SECTION, "resident memory, idle", "MB", resident["penstock"], resident["kafka"], 1 / 5),
    ]


def metadata_rows() -> list[Row]:
    """Metadata of 1,000 partitions, on one connection."""
    api = messages.api("metadata")
    with targets.penstock_broker() as target:
        create_topic(target.port, "wide", partitions=1000)
        body = messages.encode_request(3, 12, api.Request(topics=None))
        request = load.frame(3, 12, body)
        times = []
        with load.connect(target.port) as connection:
            deadline = time.monotonic() + 30
            while True:
                connection.sendall(request)
                answer = messages.decode_response(3, 12, load.read_frame(connection), 5)
                if answer.topics and all(p.leader_id >= 0 for p in answer.topics[0].partitions):
                    break
                if time.monotonic() > deadline:
                    raise RuntimeError("1,000 partitions did not come on line in 30 s")
            for _ in range(50):
                began = time.perf_counter()
                connection.sendall(request)
                load.read_frame(connection)
                times.append(time.perf_counter() - began)
    return [absolute(SECTION, "Metadata for 1,000 partitions", "ms", statistics.median(times) * 1e3, 3)]


def history_rows(rounds: int, seconds: float) -> list[Row]:
    """Cost of an append beside 2,000 partitions with 100 GB of sparse history, against 10 partitions with none."""
    costs: dict[str, list[float]] = {"small": [], "large": []}
    request = load.produce_frame("hot", 0, load.one_batch(1, 100))
    with contextlib.ExitStack() as stack:
        brokers = {}
        for name, partitions, history_bytes in (("small", 10, 0), ("large", 2000, 100 << 30)):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-")))
            with targets.penstock_broker(folder=folder) as first:
                create_topic(first.port, "hot")
                create_topic(first.port, "wide", partitions=partitions)
                load.check_produce(first.port, request)
            if history_bytes:
                grow_history(folder, history_bytes)
            target = stack.enter_context(targets.penstock_broker(folder=folder))
            brokers[name] = (target, load.check_produce(target.port, request))
        for _ in range(rounds):
            for name, (target, size) in brokers.items():
                before = target.cpu_seconds()
                result = load.pipelined(target.port, request, size, 100, seconds)
                costs[name].append((target.cpu_seconds() - before) / result.requests * 1e6)
    small, large = statistics.median(costs["small"]), statistics.median(costs["large"])
    name = "append with 2,000 partitions and 100 GB history (right: with 10 and none)"
    return [Row(SECTION, name, "µs/request", large, small, "≤ 1.3 ×", large <= 1.3 * small)]


def grow_history(folder: Path, total_bytes: int) -> None:
    """Give every partition of `wide` a sealed sparse segment (old data that nobody reads) before the active one."""
    folders = sorted(folder.glob("wide-*"))
    batch = load.one_batch(1, 100)
    for partition in folders:
        for base_offset in (0, SEALED_OFFSETS):
            for ending in (".log", ".index", ".timeindex"):
                (partition / f"{base_offset:020d}{ending}").touch()
        # The state of producers behind the history: nobody need read it again.
        write_snapshot(partition, SEALED_OFFSETS, (), durable=False)
        with (partition / f"{0:020d}.log").open("r+b") as file:
            file.write(batch)
            file.truncate(total_bytes // len(folders))


def run(rounds: int, seconds: float) -> list[Row]:
    rows: list[Row] = []
    with targets.penstock_broker() as penstock, targets.kafka_broker() as kafka:
        rows += produce_rows(penstock, kafka, rounds, seconds)
        rows += fetch_rows(penstock, kafka, rounds, seconds)
        rows += librdkafka_rows(penstock, kafka, min(rounds, 3), records=3_000_000)
        rows += latency_rows(penstock, kafka, min(rounds, 3), seconds=5)
    rows += start_rows(min(rounds, 3))
    rows += metadata_rows()
    rows += history_rows(min(rounds, 3), seconds)
    return rows
