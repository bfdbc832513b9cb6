"""Metadata (key 3), versions 0–13: brokers, topics, partitions and who leads them, from the broker's image.

An unknown topic is created when both sides allow it; as in Kafka the answer to that request still says "unknown", and
the client asks again. By id nothing is created. v5: offline replicas · v7: leader epochs · v10: topic ids · v12: by id.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from penstock.broker.api.spec import ApiSpec
from penstock.broker.metadata import codec
from penstock.broker.metadata.leader_hints import broker_address
from penstock.broker.network.large_messages import LARGE_REQUEST_BYTES
from penstock.broker.network.slices import in_slices
from penstock.broker.network.wire import LARGEST_REQUEST_BYTES, UNREADABLE, MalformedFrame, begin_frame, end_frame
from penstock.cluster.topic_names import INTERNAL_TOPICS
from penstock.protocol.errors import ErrorCode
from penstock.security.acl_model import CLUSTER_NAME

if TYPE_CHECKING:
    from penstock.broker.dispatch import Dispatcher
    from penstock.broker.network.connection import Connection, Slot
    from penstock.broker.routes import Route

logger = logging.getLogger(__name__)

API = ApiSpec(3, "Metadata", 0, 13)

# Bits of AclOperation that Kafka shows when nothing is forbidden.
ALL_TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
ALL_CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))

_UNKNOWN_TOPIC = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_IDS_BUT_NOT_YET = (10, 11)  # these carry topic ids, and Kafka refuses them
_FORBIDDEN = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
_LEADER_NOT_AVAILABLE = int(ErrorCode.LEADER_NOT_AVAILABLE)
_LISTENER_NOT_FOUND = int(ErrorCode.LISTENER_NOT_FOUND)
MAX_CREATIONS_IN_WORK = 1000
TOPICS_AT_ONCE = 1000  # more are encoded in slices


def hot_handler(dispatcher: Dispatcher, route: Route) -> Any:
    return MetadataHandler(dispatcher, route).handle_frame


class MetadataHandler:
    def __init__(self, dispatcher: Dispatcher, route: Route) -> None:
        self.dispatcher = dispatcher
        self.broker = dispatcher.broker
        self.route = route
        self.authorizer = dispatcher.broker.authorizer
        self._image: Any = None  # the one that the encoded topics below belong to
        self._encoded: dict[tuple[str, int, str], bytes] = {}
        self._creating: set[str] = set()

    def handle_frame(self, connection: Connection, version: int, correlation_id: int, position: int, end: int) -> None:
        if end - position > LARGE_REQUEST_BYTES:
            data = bytes(connection.view[position:end])
            self._start_large(connection, version, correlation_id, data)
            return
        request = _parsed(connection.buffer, version, position, end)
        image = self._current_image()
        if request.topics is None and len(image.topics) > TOPICS_AT_ONCE:
            self._start_large(connection, version, correlation_id, request)
            return
        out = begin_frame(correlation_id, version >= codec.FIRST_FLEXIBLE)
        refusal = _refusal(request, version)
        if refusal:
            out += _refused(request, version, refusal)
        else:
            shown: list[bytes] = []
            hidden: list[bytes] = []
            end_of = self._topic_ends(connection, version, request)
            for encoded, name, is_hidden in self._topics(request, _asked(request), image, connection, version):
                (hidden if is_hidden else shown).append(encoded + end_of(name))
            out += self._head(connection, version, image, len(shown) + len(hidden))
            out += b"".join(shown + hidden)
            out += self._end(connection, version, request)
        self.dispatcher.new_slot(connection, self.route).parts = (end_frame(out),)
        connection.answer_bytes += len(out)
        connection.mark_dirty()

    # Very many topics --------------------------------------------------------------------------------------------

    def _start_large(
        self, connection: Connection, version: int, correlation_id: int, asked: bytes | codec.MetadataRequest
    ) -> None:
        """Parsed in a thread if they are named, answered in slices."""
        if isinstance(asked, bytes) and len(asked) > LARGEST_REQUEST_BYTES:
            raise MalformedFrame(f"metadata of {len(asked)} bytes")
        connection.busy = True
        slot = self.dispatcher.new_slot(connection, self.route)
        task = self.dispatcher.loop.create_task(self._answer_large(connection, slot, version, correlation_id, asked))
        self.dispatcher.tasks.add(task)
        task.add_done_callback(self.dispatcher.tasks.discard)

    async def _answer_large(
        self,
        connection: Connection,
        slot: Slot,
        version: int,
        correlation_id: int,
        asked: bytes | codec.MetadataRequest,
    ) -> None:
        large = self.dispatcher.large
        try:
            if isinstance(asked, bytes):
                request = await large.run(_parsed, asked, version, 0, len(asked))
            else:
                request = asked
            out = begin_frame(correlation_id, version >= codec.FIRST_FLEXIBLE)
            refusal = await large.run(_refusal, request, version)
            if refusal:
                out += await large.run(_refused, request, version, refusal)
            else:
                out += await self._all_of(connection, version, request)
        except MalformedFrame as error:
            self.dispatcher.refuse_malformed(connection, error)
            return
        except asyncio.CancelledError:
            connection.close()
            raise
        except Exception:
            logger.exception("closing client=%s: Metadata failed", connection.client_host)
            self.dispatcher.stats.ran_into_bug("Metadata", "closed")
            connection.close()
            return
        things = [asked, request]
        del asked, request
        large.free(things)
        connection.finish(slot, (end_frame(out),))

    async def _all_of(self, connection: Connection, version: int, request: codec.MetadataRequest) -> bytearray:
        image = self._current_image()
        shown: list[bytes] = []
        hidden: list[bytes] = []
        end_of = self._topic_ends(connection, version, request)
        asked = await self.dispatcher.large.run(_asked, request)
        async for encoded, name, is_hidden in in_slices(self._topics(request, asked, image, connection, version)):
            (hidden if is_hidden else shown).append(encoded + end_of(name))
        out = bytearray(self._head(connection, version, image, len(shown) + len(hidden)))
        out += await self.dispatcher.large.run(b"".join, shown + hidden)
        return out + self._end(connection, version, request)

    # What it is made of ------------------------------------------------------------------------------------------

    def _current_image(self) -> Any:
        image = self.broker.image
        if image is not self._image:
            self._image = image
            self._encoded.clear()
        return image

    def _head(self, connection: Connection, version: int, image: Any, topics: int) -> bytes:
        brokers = [
            codec.BrokerRow(broker_id, *address)
            for broker_id, registration in sorted(image.brokers.items())
            if not registration.fenced and (address := broker_address(self.broker, connection, broker_id)) is not None
        ]
        head = codec.encode_brokers(version, brokers, image.cluster_id, image.controller_id)
        return head + codec.encode_count(version, topics)

    def _topic_ends(
        self, connection: Connection, version: int, request: codec.MetadataRequest
    ) -> Callable[[str | None], bytes]:
        """What stands behind a topic: the sender's operations on it, if it asks for them."""
        nothing = codec.encode_topic_end(version, codec.NOT_ASKED)
        if not request.include_topic_operations:
            return lambda name: nothing
        authorizer = self.authorizer
        if authorizer is None:
            everything = codec.encode_topic_end(version, ALL_TOPIC_OPERATIONS)
            return lambda name: nothing if name is None else everything

        def by_rights(name: str | None) -> bytes:
            if name is None:
                return nothing
            return codec.encode_topic_end(version, authorizer.operations(connection, "TOPIC", name))

        return by_rights

    def _end(self, connection: Connection, version: int, request: codec.MetadataRequest) -> bytes:
        operations = codec.NOT_ASKED
        if request.include_cluster_operations:
            authorizer = self.authorizer
            operations = ALL_CLUSTER_OPERATIONS if authorizer is None else authorizer.cluster_operations(connection)
        return codec.encode_end(version, operations)

    def _topics(
        self,
        request: codec.MetadataRequest,
        asked: list[tuple[bytes, str | None]],
        image: Any,
        connection: Connection,
        version: int,
    ) -> Iterator[tuple[bytes, str | None, bool]]:
        """(encoded, its name unless unknown or hidden, whether it is hidden from the sender and thus comes last)."""
        listener = connection.listener.name
        authorizer = self.authorizer
        if request.topics is None:
            for name in sorted(image.topics):
                if authorizer is None or authorizer.may(connection, "DESCRIBE", "TOPIC", name, audit=False):
                    yield self._encode(name, version, listener, image), name, False
            return
        for topic_id, asked_name in asked:
            known = asked_name
            if topic_id != codec.ZERO_ID:
                known = image.topic_names_by_bytes.get(topic_id)
                if known is None:
                    error = int(ErrorCode.UNKNOWN_TOPIC_ID)
                    yield codec.encode_topic(version, error, None, topic_id, False, []), None, False
                    continue
            if authorizer is not None and not authorizer.may(connection, "DESCRIBE", "TOPIC", known or ""):
                told = None if topic_id != codec.ZERO_ID else known
                yield codec.encode_topic(version, _FORBIDDEN, told, topic_id, False, []), None, True
                continue
            if known is not None and known in image.topics:
                yield self._encode(known, version, listener, image), known, False
                continue
            error = self._missing(connection, known or "", request.allow_auto_topic_creation)
            encoded = codec.encode_topic(version, error, known, codec.ZERO_ID, known in INTERNAL_TOPICS, [])
            is_hidden = error == _FORBIDDEN
            yield encoded, None if is_hidden else known, is_hidden

    def _encode(self, name: str, version: int, listener: str, image: Any) -> bytes:
        if image is not self._image:  # another one came between two slices
            return self._encode_topic(name, version, listener, image)
        key = (name, version, listener)
        encoded = self._encoded.get(key)
        if encoded is None:
            encoded = self._encoded[key] = self._encode_topic(name, version, listener, image)
        return encoded

    def _encode_topic(self, name: str, version: int, listener: str, image: Any) -> bytes:
        topic = image.topics[name]
        rows = []
        for index, partition in sorted(topic.partitions.items()):
            leader, error = partition.leader, 0
            broker = image.brokers.get(leader)
            if broker is None:
                leader, error = -1, _LEADER_NOT_AVAILABLE
            elif listener not in broker.endpoints:
                leader, error = -1, _LISTENER_NOT_FOUND if version >= 6 else _LEADER_NOT_AVAILABLE
            offline = tuple(r for r in partition.replicas if not image.hears(r) or r in partition.offline)
            rows.append(
                codec.PartitionRow(
                    error, index, leader, partition.leader_epoch, partition.replicas, partition.isr, offline
                )
            )
        return codec.encode_topic(version, 0, name, topic.topic_id.bytes, name in INTERNAL_TOPICS, rows)

    def _missing(self, connection: Connection, name: str, allowed: bool) -> int:
        """The error for a topic that is not there; begins to create it where that is allowed."""
        creates = allowed and self.broker.settings["auto.create.topics.enable"]
        authorizer = self.authorizer
        if creates and authorizer is not None:
            on_cluster = authorizer.may(connection, "CREATE", "CLUSTER", CLUSTER_NAME, audit=False)
            if not on_cluster and not authorizer.may(connection, "CREATE", "TOPIC", name):
                return _FORBIDDEN
        if not is_valid_topic_name(name):
            return int(ErrorCode.INVALID_TOPIC_EXCEPTION)
        if creates and name not in self._creating:
            if len(self._creating) >= MAX_CREATIONS_IN_WORK:
                return _LEADER_NOT_AVAILABLE
            self._creating.add(name)
            task = self.dispatcher.loop.create_task(self._create(name))
            self.dispatcher.tasks.add(task)
            task.add_done_callback(self.dispatcher.tasks.discard)
        return _UNKNOWN_TOPIC

    async def _create(self, name: str) -> None:
        try:
            error = await self.broker.auto_create_topic(name)
            if error:
                logger.warning("creating topic=%s on demand failed: %s", name, error)
        except Exception:
            logger.exception("creating topic=%s on demand failed", name)
        finally:
            self._creating.discard(name)


def _parsed(buffer: Any, version: int, position: int, end: int) -> codec.MetadataRequest:
    try:
        return codec.parse_metadata(buffer, version, position, end)
    except UNREADABLE as error:
        raise MalformedFrame(f"metadata v{version}: {error}") from error


def _asked(request: codec.MetadataRequest) -> list[tuple[bytes, str | None]]:
    """Each once. Where some are asked for by id, Kafka does not look at names."""
    asked = list(dict.fromkeys(request.topics or ()))
    by_id = [topic for topic in asked if topic[0] != codec.ZERO_ID]
    return by_id or asked


def _refusal(request: codec.MetadataRequest, version: int) -> int:
    """Why nothing of it is answered: it says about a topic what its version may not say, or nothing."""
    topics = request.topics or []
    if version in _IDS_BUT_NOT_YET and any(i != codec.ZERO_ID or name is None for i, name in topics):
        return int(ErrorCode.INVALID_REQUEST)
    if any(name is None for _, name in topics) and all(i == codec.ZERO_ID for i, _ in topics):
        return int(ErrorCode.UNKNOWN_SERVER_ERROR)
    return 0


def _refused(request: codec.MetadataRequest, version: int, error: int) -> bytearray:
    topics = request.topics or []
    out = bytearray(codec.encode_brokers(version, [], None, -1) + codec.encode_count(version, len(topics)))
    for topic_id, name in topics:
        out += codec.encode_topic(version, error, name or "", topic_id, False, [])
        out += codec.encode_topic_end(version, codec.NOT_ASKED)
    return out + codec.encode_end(version, codec.NOT_ASKED)


_NAME_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")


def is_valid_topic_name(name: str) -> bool:
    return 0 < len(name) <= 249 and name not in (".", "..") and _NAME_CHARACTERS.issuperset(name)
