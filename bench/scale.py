"""What one more of each thing costs: memory and idle CPU of a broker with 10, 100, … of them (docs/SCALE.md).

`python -m bench.scale partitions connections groups members transactions --most 10000` measures a real broker process;
`python -m bench.scale controller --brokers 1000 --most 1000000` measures the controller's pure core and its messages.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import resource
import socket
import time
import tracemalloc
import uuid
from collections.abc import Callable, Iterator

from bench import targets
from bench.load import create_topic
from penstock.client.sync import SyncClient
from penstock.cluster.controller import ControllerState, decide, initial_state
from penstock.cluster.events import BrokersChanged
from penstock.cluster.image import BrokerRegistration, Endpoint, MetadataImage, PartitionRegistration, TopicImage
from penstock.cluster.image_codec import ImagePush, decode_push, encode_push
from penstock.protocol import messages

IDLE_SECONDS = 5.0
PARTITIONS_PER_TOPIC = 1000


def measure(
    name: str, grow: Callable[[targets.Target, int, int], contextlib.AbstractContextManager[None]], most: int
) -> None:
    """One broker, more and more units; the slope is that of the last step."""
    print(f"\n{name}\n\n| how many | MB | KB each (step) | s to make | CPU, idle |\n|---|---|---|---|---|", flush=True)
    with targets.penstock_broker({"group.initial.rebalance.delay.ms": "0"}) as target, contextlib.ExitStack() as held:
        time.sleep(2.0)  # its start is over
        there, before = 0, target.resident_megabytes()
        wanted = 10
        while wanted <= most:
            began = time.perf_counter()
            held.enter_context(grow(target, there, wanted))
            took = time.perf_counter() - began
            time.sleep(1.5)
            cpu = target.cpu_seconds()
            time.sleep(IDLE_SECONDS)
            idle = (target.cpu_seconds() - cpu) / IDLE_SECONDS * 100
            megabytes = target.resident_megabytes()
            each = (megabytes - before) * 1000 / (wanted - there)
            print(f"| {wanted:,} | {megabytes:.0f} | {each:.1f} | {took:.1f} | {idle:.1f} % |", flush=True)
            there, before, wanted = wanted, megabytes, wanted * 10


@contextlib.contextmanager
def partitions(target: targets.Target, there: int, wanted: int) -> Iterator[None]:
    for first in range(there, wanted, PARTITIONS_PER_TOPIC):
        count = min(PARTITIONS_PER_TOPIC, wanted - first)
        create_topic(target.port, f"t{first}", partitions=count)
    yield


@contextlib.contextmanager
def connections(target: targets.Target, there: int, wanted: int) -> Iterator[None]:
    sockets = [socket.create_connection(("127.0.0.1", target.port)) for _ in range(there, wanted)]
    try:
        yield
    finally:
        for open_one in sockets:
            open_one.close()


@contextlib.contextmanager
def groups(target: targets.Target, there: int, wanted: int) -> Iterator[None]:
    """Each a group with one committed offset."""
    api = messages.api("offset_commit").load_all_versions()
    if there == 0:
        create_topic(target.port, "read", partitions=1)
    with SyncClient(target.bootstrap) as client:
        for number in range(there, wanted):
            partition = api.OffsetCommitRequestPartition(partition_index=0, committed_offset=number)
            topic = api.OffsetCommitRequestTopic(name="read", partitions=[partition])
            request = api.Request(group_id=f"group-{number}", generation_id_or_member_epoch=-1, topics=[topic])
            client.call_coordinator("group", f"group-{number}", "offset_commit", request, highest_version=9)
    yield


@contextlib.contextmanager
def members(target: targets.Target, there: int, wanted: int) -> Iterator[None]:
    """All in one group of the new protocol; they do not come back, so this is what joining and keeping costs."""
    api = messages.api("consumer_group_heartbeat").load_all_versions()
    if there == 0:
        create_topic(target.port, "shared", partitions=100)
    with SyncClient(target.bootstrap) as client:
        for _ in range(there, wanted):
            request = api.Request(
                group_id="crowd",
                member_id=str(uuid.uuid4()),
                member_epoch=0,
                rebalance_timeout_ms=300_000,
                subscribed_topic_names=["shared"],
                topic_partitions=[],
            )
            client.call_coordinator("group", "crowd", "consumer_group_heartbeat", request)
    yield


@contextlib.contextmanager
def transactions(target: targets.Target, there: int, wanted: int) -> Iterator[None]:
    """Transactional ids that have begun once."""
    api = messages.api("init_producer_id").load_all_versions()
    with SyncClient(target.bootstrap) as client:
        for number in range(there, wanted):
            request = api.Request(transactional_id=f"txn-{number}", transaction_timeout_ms=60_000)
            client.call_coordinator("transaction", f"txn-{number}", "init_producer_id", request)
    yield


# -- the controller, without brokers


def wide_state(brokers: int, partition_count: int) -> ControllerState:
    """Topics of 1,000 partitions with three replicas each, spread over the brokers."""
    state = initial_state("scale", 0, 1)
    registered = {
        b: BrokerRegistration(b, b + 1, {"PLAINTEXT": Endpoint(f"host{b}", 9092)}, f"rack{b % 3}")
        for b in range(brokers)
    }
    topics = {}
    for first in range(0, partition_count, PARTITIONS_PER_TOPIC):
        name = f"topic-{first}"
        parts = {}
        for index in range(PARTITIONS_PER_TOPIC):
            place = first + index
            replicas = tuple((place * 7 + step * (1 + place % (brokers // 3))) % brokers for step in range(3))
            parts[index] = PartitionRegistration(replicas, replicas, replicas[0], 0, 0, min_isr=2)
        topics[name] = TopicImage(name, uuid.UUID(int=first + 1), parts)
    image = MetadataImage("scale", 0, 1, 1, registered, topics, {})
    return ControllerState(image, state.policy)


def controller(brokers: int, most: int) -> None:
    columns = (
        "partitions",
        "image in memory, MB",
        "whole image pushed, MB",
        "s to encode and read",
        "a broker dies: s to decide",
        "partitions it touches",
        "delta pushed, KB",
    )
    print(f"\nA controller of {brokers:,} brokers\n\n| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    count = 10_000
    while count <= most:
        gc.collect()
        tracemalloc.start()
        state = wide_state(brokers, count)
        megabytes = tracemalloc.get_traced_memory()[0] / 1e6
        tracemalloc.stop()
        push = ImagePush("scale", 0, 1, 1, full=state.image, delta=None)
        began = time.perf_counter()
        body = encode_push(push)
        decode_push(body)
        coded = time.perf_counter() - began
        event = BrokersChanged({b: r for b, r in state.image.brokers.items() if b != 1})
        began = time.perf_counter()
        decision = decide(state, event)
        decided = time.perf_counter() - began
        delta = decision.output.delta
        assert delta is not None
        touched = sum(len(topic.partitions) for topic in delta.topics_changed.values())
        pushed = len(encode_push(ImagePush("scale", 0, 1, 1, full=None, delta=delta))) / 1000
        print(
            f"| {count:,} | {megabytes:.0f} | {len(body) / 1e6:.1f} | {coded:.1f} | {decided:.2f} | {touched:,} "
            f"| {pushed:.0f} |",
            flush=True,
        )
        count *= 10


UNITS = {
    "partitions": partitions,
    "connections": connections,
    "groups": groups,
    "members": members,
    "transactions": transactions,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("what", nargs="+", choices=[*UNITS, "controller"])
    parser.add_argument("--most", type=int, default=10_000)
    parser.add_argument("--brokers", type=int, default=1000)
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    for what in options.what:
        if what == "controller":
            controller(options.brokers, options.most)
        else:
            measure(what, UNITS[what], options.most)


if __name__ == "__main__":
    main()
