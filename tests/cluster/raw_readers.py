"""Readers that repeat one request as consumers do, on the leader or on one broker, and compare every byte they get."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

from penstock.protocol import messages
from penstock.protocol.batch import iterate_batches

VERSION = 12
OUT_OF_RANGE = 1


class Told:
    """What all readers of a partition were told: one batch per offset, the same to everybody."""

    def __init__(self) -> None:
        self.batches: dict[int, bytes] = {}
        self.wrong: list[str] = []
        self._lock = threading.Lock()

    def take(self, reader: str, expected: int, records: bytes) -> int:
        """Returns the next offset."""
        for header in iterate_batches(memoryview(records)):
            if header.last_offset < expected:
                continue
            data = records[header.position : header.position + header.size]
            with self._lock:
                if header.base_offset != expected:
                    self.wrong.append(f"{reader}: {header.base_offset} where {expected} was due")
                if self.batches.setdefault(header.base_offset, data) != data:
                    self.wrong.append(f"{reader}: other bytes at {header.base_offset}")
            expected = header.next_offset
        return expected


class Reader(threading.Thread):
    """Polls until it is stopped; `port` says whom to ask, again after each error."""

    def __init__(
        self, name: str, told: Told, port: Callable[[], int], topic: str, *, isolation_level: int, in_session: bool,
        of_leader: bool,
    ) -> None:  # fmt: skip
        super().__init__(name=name, daemon=True)
        self.offset = 0
        self._told = told
        self._port = port
        self._topic = topic
        self._isolation_level = isolation_level
        self._in_session = in_session
        self._of_leader = of_leader
        self._ended = threading.Event()

    def end(self) -> None:
        self._ended.set()

    def run(self) -> None:
        while not self._ended.is_set():
            with contextlib.suppress(OSError):
                self._read(self._port())
            self._ended.wait(0.05)

    def _read(self, port: int) -> None:
        session_id, epoch = 0, 0 if self._in_session else -1
        with socket.create_connection(("127.0.0.1", port), 5) as connection:
            while not self._ended.is_set():
                answer = _call(connection, self._request(session_id, epoch))
                if answer.error_code:
                    return
                if self._in_session:
                    session_id, epoch = answer.session_id, epoch + 1
                for topic in answer.responses:
                    for partition in topic.partitions:
                        if partition.error_code == OUT_OF_RANGE and self._of_leader:
                            self._told.wrong.append(f"{self.name}: {self.offset} is out of range")
                        if partition.error_code:
                            return
                        self.offset = self._told.take(self.name, self.offset, bytes(partition.records or b""))

    def _request(self, session_id: int, epoch: int) -> Any:
        api = messages.api("fetch").load_all_versions()
        wanted = api.FetchPartition(partition=0, fetch_offset=self.offset, partition_max_bytes=20_000)
        return api.Request(
            max_wait_ms=300, min_bytes=1, max_bytes=20_000, isolation_level=self._isolation_level,
            session_id=session_id, session_epoch=epoch, topics=[api.FetchTopic(topic=self._topic, partitions=[wanted])],
        )  # fmt: skip


def _call(connection: socket.socket, request: Any) -> Any:
    body = bytes(messages.encode_request(1, VERSION, request))
    head = struct.pack(">hhih", 1, VERSION, 7, 6) + b"reader\0"
    connection.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
    (size,) = struct.unpack(">i", _exactly(connection, 4))
    return messages.decode_response(1, VERSION, _exactly(connection, size), 5)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError("closed")
        data += part
    return bytes(data)
