"""Records into a topic with librdkafka: one by one with everything a record may have, or whole blocks of plain ones."""

from __future__ import annotations

import difflib
import json
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from penstock.operate.errors import ExitCode, UserError, no_partition, usage_error
from penstock.operate.record_format import bytes_of

if TYPE_CHECKING:
    from penstock.operate.session import Session

Headers = list[tuple[str, bytes | None]]
Record = tuple[bytes | None, bytes | None, Headers | None, int, int]
"""key, value, headers, partition (-1: by key), timestamp in ms (0: now)."""
Block = list[dict[str, bytes | None]]
"""Records of only a key and a value, under these names."""

QUEUED_RECORDS = 500_000
QUEUED_BYTES = 1_000_000_000  # under librdkafka's own limit: a block that fits is taken whole, so order is kept
MAKING_SECONDS = 5.0
SILENCE_SECONDS = 1.0
HINTS = {
    "MSG_SIZE_TOO_LARGE": "-X message.max.bytes=N raises our limit, max.message.bytes that of the topic",
    "UNKNOWN_TOPIC_OR_PART": "`penstock topic create` makes a topic",
    "TOPIC_EXCEPTION": "the names of topics hold letters, digits, dots, _ and -, 249 at the most",
}


class Writer:
    """A librdkafka producer that stops at the first record that cannot be delivered, and says so."""

    def __init__(self, session: Session, topic: str, compression: str, acks: str, transactional: bool) -> None:
        from confluent_kafka import KafkaException, Producer

        if compression not in ("none", "gzip", "snappy", "lz4", "zstd"):
            raise usage_error(f"--compression {compression!r} is unknown", "there is none, gzip, snappy, lz4 and zstd")
        if acks not in ("all", "-1", "0", "1"):
            raise usage_error(f"--acks {acks!r} is unknown", "there is all, 1 and 0")
        settings = {
            "linger.ms": 5,
            "batch.num.messages": 100_000,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": QUEUED_RECORDS,
            "compression.type": compression,
            "acks": acks,
            "message.timeout.ms": 30_000,
            "partitioner": "murmur2_random",  # a key goes where Java clients and our Spark sink put it
            "delivery.report.only.error": True,  # a call into Python for every record would halve the speed
        }
        if transactional:
            settings["transactional.id"] = f"penstock-cli-{time.time_ns()}"
        elif acks in ("all", "-1"):
            settings["enable.idempotence"] = True
        self._session, self._topic, self._transactional = session, topic, transactional
        self._failure: Any = None
        self._failures = 0
        self._count = 0
        self.partitions: int | None = None  # None while the topic is only about to be made
        try:
            self._producer = Producer(session.librdkafka(**settings))
            # A cluster that is not there is told before we read any input.
            self._insist_on_a_cluster()
            self.partitions = self._described_partitions()
            if transactional:
                self._producer.init_transactions(15)
        except KafkaException as error:
            raise self._explain(error.args[0]) from error

    def _insist_on_a_cluster(self) -> None:
        """librdkafka waits in silence, whatever is wrong; our own client knows what to say of it."""
        from confluent_kafka import KafkaException

        try:
            self._producer.list_topics("", min(SILENCE_SECONDS, self._session.patience_seconds))
        except KafkaException:
            self._session.client.metadata()

    def _described_partitions(self) -> int | None:
        """How many partitions the topic has. Asking makes it where brokers make topics; that takes them a moment."""
        deadline = time.monotonic() + MAKING_SECONDS
        while True:
            described = self._producer.list_topics(self._topic, self._session.patience_seconds).topics[self._topic]
            reason = described.error.name() if described.error is not None else ""
            if reason == "TOPIC_EXCEPTION":
                raise UserError(f"{self._topic!r} is no name for a topic", HINTS[reason], ExitCode.REFUSED)
            if reason != "UNKNOWN_TOPIC_OR_PART":
                return len(described.partitions) or None
            if time.monotonic() > deadline:
                hint = f"these brokers do not make topics by themselves: `penstock topic create {self._topic}`"
                raise UserError(f"there is no topic {self._topic!r}", hint, ExitCode.NOT_FOUND)
            time.sleep(0.1)

    def write(self, records: Iterable[Record]) -> int:
        return self._all_of_it(lambda: self._one_by_one(records))

    def write_blocks(self, blocks: Iterable[tuple[Block, int]], partition: int) -> int:
        """Blocks of {"key", "value"} with the size of their longest record: half the work of `write` for each."""
        return self._all_of_it(lambda: self._block_by_block(blocks, partition))

    def _all_of_it(self, enqueue: Callable[[], None]) -> int:
        """Hand the records over, wait until they are delivered, and commit if that was asked for."""
        from confluent_kafka import KafkaException

        producer = self._producer
        self._count = 0
        try:
            if self._transactional:
                producer.begin_transaction()
            enqueue()
            left = producer.flush(45)
            self._raise_failure()
            if left:
                raise self._session.unreachable(f"{left} of {self._count} records could not be delivered")
            if self._transactional:
                producer.commit_transaction(30)
        except KafkaException as error:
            raise self._explain(error.args[0]) from error
        except BaseException:
            self._break_off()
            raise
        return self._count

    def _one_by_one(self, records: Iterable[Record]) -> None:
        producer, topic, delivered = self._producer, self._topic, self._delivered
        produce = producer.produce
        for key, value, headers, partition, timestamp in records:
            if self.partitions is not None and partition >= self.partitions:
                hint = "--repartition places records by key instead; `penstock topic add-partitions` makes more"
                raise no_partition(f"record {self._count + 1}: {topic}", partition, range(self.partitions), hint)
            while True:
                try:
                    produce(topic, value, key, partition, delivered, timestamp=timestamp, headers=headers)
                    break
                except BufferError:
                    producer.poll(0.05)
                    self._raise_failure()
            self._count += 1
            if not self._count & 0x3FFF:
                producer.poll(0)
                self._raise_failure()

    def _block_by_block(self, blocks: Iterable[tuple[Block, int]], partition: int) -> None:
        producer = self._producer
        if self.partitions is not None and partition >= self.partitions:
            raise no_partition(self._topic, partition, range(self.partitions))
        longest_so_far = 1
        for block, longest in blocks:
            longest_so_far = max(longest_so_far, longest)
            room = min(QUEUED_RECORDS, QUEUED_BYTES // longest_so_far)
            producer.poll(0)
            while 0 < len(producer) > room - len(block):
                producer.poll(0.02)
                self._raise_failure()
            taken = producer.produce_batch(self._topic, block, partition, self._delivered)
            if taken < len(block):
                index = next(index for index, row in enumerate(block) if "_error" in row)
                refused, number = block[index]["_error"], self._count + index + 1
                self._count += taken
                raise self._explain(refused, f"record {number}: ")
            self._count += taken
            self._raise_failure()

    def _break_off(self) -> None:
        """Wrong input or Ctrl-C in the middle: all or nothing in a transaction; else say how much there is."""
        if self._transactional:
            self._abort()
        elif self._failure is None and self._count:
            left = self._producer.flush(10)
            self._session.note(f"penstock: {self._count - left} records were written before this:")

    def _abort(self) -> None:
        from confluent_kafka import KafkaException

        self._producer.purge()
        try:
            self._producer.abort_transaction(10)
        except KafkaException as error:
            self._session.note(f"penstock: the transaction could not be aborted, it will time out: {error}")

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failures += 1
            self._failure = self._failure or error

    def _raise_failure(self) -> None:
        if self._failure is not None:
            self._producer.purge()
            self._producer.flush(5)  # hands out what is known of the others
            raise self._explain(self._failure, f"{self._failures} of {self._count} records were not confirmed: ")

    def _explain(self, error: Any, prefix: str = "") -> UserError:
        if error.name() in ("_MSG_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_RESOLVE"):
            return self._session.unreachable(error.str())
        hint = HINTS.get(error.name(), f"the client says {error.name()}")
        return UserError(f"{prefix}{error.str()}", hint, ExitCode.REFUSED)


FIELDS = ("key", "value", "headers", "timestamp", "partition", "key_encoding", "value_encoding")
IGNORED_FIELDS = ("topic", "offset")  # printed by `consume --json`; the target has its own


def objects_of_lines(lines: Iterable[bytes], where: str, hint: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(where it stands, object) of each line that is not blank; anything but an object is an error with this hint."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        place = f"{where}line {number}"
        try:
            row = json.loads(line)
        except ValueError as error:
            raise usage_error(f"{place} is not JSON: {error}", hint) from None
        if not isinstance(row, dict):
            raise usage_error(f"{place} is no JSON object", hint)
        yield place, row


def record_from_object(
    row: dict[str, Any], where: str, headers: Headers | None = None, partition: int | None = None
) -> Record:
    """A record from an object as `consume --json` prints it; `partition` (-1: by key) beats the object's own."""
    for name in row:
        if name not in FIELDS and name not in IGNORED_FIELDS:
            close = difflib.get_close_matches(name.lower(), FIELDS, n=1, cutoff=0.6)
            hint = f"did you mean {close[0]!r}?" if close else f"there is {', '.join(FIELDS)}"
            raise usage_error(f"{where}: there is no field {name!r}", hint)
    key = bytes_of(row.get("key"), row.get("key_encoding"), f"{where}, key")
    value = bytes_of(row.get("value"), row.get("value_encoding"), f"{where}, value")
    timestamp = row.get("timestamp") or 0
    if not isinstance(timestamp, int) or not 0 <= timestamp < 1 << 63:
        raise usage_error(f"{where}, timestamp: {timestamp!r} is no time", "it is milliseconds since 1970, a number")
    own = _own_headers(row.get("headers") or [], where)
    chosen = row.get("partition", -1) if partition is None else partition
    if not isinstance(chosen, int) or isinstance(chosen, bool) or not -1 <= chosen < 1 << 31:
        raise usage_error(f"{where}, partition: {chosen!r} is no partition", "it is a number from 0 on; -1: by key")
    return key, value, [*(headers or []), *own] or None, chosen, timestamp


def _own_headers(given: Any, where: str) -> Headers:
    pairs = list(given.items()) if isinstance(given, dict) else given
    if not isinstance(pairs, list) or not all(
        isinstance(pair, list | tuple) and 2 <= len(pair) <= 3 and isinstance(pair[0], str) for pair in pairs
    ):
        raise usage_error(f"{where}, headers: neither an object nor pairs", 'for example [["source", "web"]]')
    return [(p[0], bytes_of(p[1], p[2] if len(p) > 2 else None, f"{where}, header {p[0]}")) for p in pairs]
