"""Metadata (key 3), versions 0–13: brokers, topics, partitions and who leads them, from the broker's image.

An unknown topic is created when both sides allow it; as in Kafka the answer to that request still says "unknown", and
the client asks again. By id nothing is created. v5: offline replicas · v7: leader epochs · v10: topic ids · v12: by id.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from penstock.broker.api.spec import ApiSpec
from penstock.broker.metadata import codec
from penstock.broker.metadata.leader_hints import broker_address
from penstock.broker.network.wire import UNREADABLE, MalformedFrame, begin_frame, end_frame
from penstock.cluster.topic_names import INTERNAL_TOPICS
from penstock.protocol.errors import ErrorCode
from penstock.security.acl_model import CLUSTER_NAME

if TYPE_CHECKING:
    from penstock.broker.dispatch import Dispatcher
    from penstock.broker.network.connection import Connection
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
        try:
            request = codec.parse_metadata(connection.buffer, version, position, end)
        except UNREADABLE as error:
            raise MalformedFrame(f"metadata v{version}: {error}") from error
        image = self.broker.image
        if image is not self._image:
            self._image = image
            self._encoded.clear()
        out = begin_frame(correlation_id, version >= codec.FIRST_FLEXIBLE)
        refusal = _refusal(request, version)
        if refusal:
            out += _refused(request, version, refusal)
            self._send(connection, out)
            return
        brokers = [
            codec.BrokerRow(broker_id, *address)
            for broker_id, registration in sorted(image.brokers.items())
            if not registration.fenced and (address := broker_address(self.broker, connection, broker_id)) is not None
        ]
        out += codec.encode_brokers(version, brokers, image.cluster_id, image.controller_id)
        topics = self._topics(request, image, connection, version)
        out += codec.encode_count(version, len(topics))
        no_operations = codec.encode_topic_end(version, codec.NOT_ASKED)
        all_operations = codec.encode_topic_end(version, ALL_TOPIC_OPERATIONS)
        authorizer = self.authorizer
        for encoded, name in topics:
            out += encoded
            if name is None or not request.include_topic_operations:
                out += no_operations
            elif authorizer is None:
                out += all_operations
            else:
                out += codec.encode_topic_end(version, authorizer.operations(connection, "TOPIC", name))
        operations = codec.NOT_ASKED
        if request.include_cluster_operations:
            operations = ALL_CLUSTER_OPERATIONS if authorizer is None else authorizer.cluster_operations(connection)
        out += codec.encode_end(version, operations)
        self._send(connection, out)

    def _send(self, connection: Connection, out: bytearray) -> None:
        self.dispatcher.new_slot(connection, self.route).parts = (end_frame(out),)
        connection.answer_bytes += len(out)
        connection.mark_dirty()

    def _topics(
        self, request: codec.MetadataRequest, image: Any, connection: Connection, version: int
    ) -> list[tuple[bytes, str | None]]:
        """(encoded, its name unless unknown or hidden). What is hidden from the sender comes last, or not at all."""
        listener = connection.listener.name
        authorizer = self.authorizer
        if request.topics is None:
            names = sorted(image.topics)
            if authorizer is not None:
                names = [n for n in names if authorizer.may(connection, "DESCRIBE", "TOPIC", n, audit=False)]
            return [(self._encode(name, version, listener), name) for name in names]
        found: list[tuple[bytes, str | None]] = []
        forbidden: list[tuple[bytes, str | None]] = []
        asked = dict.fromkeys(request.topics)
        by_id = any(topic_id != codec.ZERO_ID for topic_id, _ in asked)
        for topic_id, asked_name in asked:
            if by_id and topic_id == codec.ZERO_ID:
                continue  # where some are asked for by id, Kafka does not look at names
            name = asked_name
            if topic_id != codec.ZERO_ID:
                name = image.topic_names_by_bytes.get(topic_id)
                if name is None:
                    error = int(ErrorCode.UNKNOWN_TOPIC_ID)
                    found.append((codec.encode_topic(version, error, None, topic_id, False, []), None))
                    continue
            if authorizer is not None and not authorizer.may(connection, "DESCRIBE", "TOPIC", name or ""):
                shown = None if topic_id != codec.ZERO_ID else name
                forbidden.append((codec.encode_topic(version, _FORBIDDEN, shown, topic_id, False, []), None))
                continue
            if name is not None and name in image.topics:
                found.append((self._encode(name, version, listener), name))
                continue
            internal = name in INTERNAL_TOPICS
            error = self._missing(connection, name or "", request.allow_auto_topic_creation)
            encoded = codec.encode_topic(version, error, name, codec.ZERO_ID, internal, [])
            if error == _FORBIDDEN:
                forbidden.append((encoded, None))
            else:
                found.append((encoded, name))
        return found + forbidden

    def _encode(self, name: str, version: int, listener: str) -> bytes:
        key = (name, version, listener)
        encoded = self._encoded.get(key)
        if encoded is None:
            encoded = self._encoded[key] = self._encode_topic(name, version, listener)
        return encoded

    def _encode_topic(self, name: str, version: int, listener: str) -> bytes:
        image = self._image
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
