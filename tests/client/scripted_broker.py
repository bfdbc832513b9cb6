"""A broker of a few lines: it answers what the test says, over a real socket."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from typing import Any

from penstock.protocol import messages

Answer = bytes | None
Handler = Callable[["ScriptedBroker", int, int, Any], Awaitable[Answer]]


class ScriptedBroker:
    """`handler(broker, api_key, version, request)` returns an encoded body, None for silence, or raises to hang up."""

    def __init__(self, handler: Handler | None = None, api_versions: tuple[int, int] = (0, 4)) -> None:
        self.handler = handler
        self.api_versions = api_versions
        self.seen: list[tuple[int, int]] = []
        self.port = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> ScriptedBroker:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.hang_up()
        await self._server.wait_closed()

    def hang_up(self) -> None:
        for writer in self._writers:
            writer.close()
        self._writers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(size)
                key, version, correlation_id, name_length = struct.unpack_from(">hhih", frame)
                self.seen.append((key, version))
                if key == 18:
                    body: Answer = self._versions(version)
                else:
                    flexible = messages.is_flexible(key, version)
                    request = messages.decode_request(key, version, frame, 10 + name_length + flexible)
                    assert self.handler is not None
                    body = await self.handler(self, key, version, request)
                    body = b"\x00" + body if flexible and body is not None else body
                if body is not None:
                    answer = struct.pack(">i", correlation_id) + body
                    writer.write(struct.pack(">i", len(answer)) + answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    def _versions(self, version: int) -> bytes:
        api = messages.api("api_versions")
        keys = [api.ApiVersion(api_key=18, min_version=self.api_versions[0], max_version=self.api_versions[1])]
        keys += [
            api.ApiVersion(api_key=k, min_version=0, max_version=v) for k, v in ((0, 9), (1, 12), (3, 12), (10, 4))
        ]
        keys += [api.ApiVersion(api_key=16, min_version=0, max_version=4)]
        supported = self.api_versions[0] <= version <= self.api_versions[1]
        answer = api.Response(error_code=0 if supported else 35, api_keys=keys)
        return bytes(messages.encode_response(18, version if supported else 0, answer))

    def metadata(self, version: int, topic: str = "t", leader_id: int = 1) -> bytes:
        """An answer in which this broker is number 1 and leads partition 0 of a topic."""
        api = messages.api("metadata")
        partition = api.MetadataResponsePartition(partition_index=0, leader_id=leader_id, leader_epoch=1)
        response = api.Response(
            brokers=[api.MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.port)],
            cluster_id="c",
            controller_id=1,
            topics=[api.MetadataResponseTopic(name=topic, partitions=[partition])],
        )
        return bytes(messages.encode_response(3, version, response))
