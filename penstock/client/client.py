"""A client of a whole cluster: finds leaders, coordinators and the controller, keeps connections, tries again.

    async with Client("127.0.0.1:9092") as client:
        answer = await client.call_controller("create_topics", request)

Answers come back with their error codes; exceptions mean that no broker could be asked.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import Any

from penstock.client.connection import Connection
from penstock.client.errors import BrokerUnreachable, ClientError, ConnectionLost, KafkaError
from penstock.client.metadata import BrokerAddress, ClusterView
from penstock.client.retry import Attempts, RetryPolicy, says_only, worth_another_try
from penstock.client.security import Security
from penstock.protocol import messages
from penstock.protocol.errors import ErrorCode

__all__ = ["Client", "parse_bootstrap"]

COORDINATOR_KINDS = {"group": 0, "transaction": 1, "share": 2}


def parse_bootstrap(servers: str | Iterable[str]) -> list[tuple[str, int]]:
    """`host:port,[::1]:port` as pairs; 9092 is the port unless one is given."""
    entries = servers.split(",") if isinstance(servers, str) else list(servers)
    parsed = []
    for entry in (e.strip() for e in entries):
        if not entry:
            continue
        address = entry.rsplit("://", 1)[-1]
        host, separator, port = address.rpartition(":")
        if not separator or address.endswith("]"):
            host, port = address, "9092"
        if not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError(f"bootstrap server {entry!r} has no valid port; write host:port")
        parsed.append((host.strip("[]"), int(port)))
    if not parsed:
        raise ValueError("no bootstrap server is given; write host:port, separated by commas")
    return parsed


class Client:
    """Belongs to one event loop; make a `SyncClient` to use it from plain code."""

    def __init__(
        self,
        bootstrap: str | Iterable[str],
        *,
        client_id: str = "penstock",
        security: Security | None = None,
        retry: RetryPolicy | None = None,
        connect_timeout_s: float = 10.0,
        on_open: Callable[[Connection], Awaitable[None]] | None = None,
        request_timeout_s: float = 30.0,
        metadata_max_age_s: float = 300.0,
        explain_silence: bool = False,
    ) -> None:
        self.bootstrap = parse_bootstrap(bootstrap)
        self.client_id = client_id
        self.security = security or Security()
        self.retry = retry or RetryPolicy()
        self.view = ClusterView()
        self._connect_timeout_s = connect_timeout_s
        self._on_open = on_open  # what each new connection must do before it is used
        self._request_timeout_s = request_timeout_s
        self._metadata_max_age_s = metadata_max_age_s
        self._explain_silence = explain_silence  # a person waits: ask what the listener speaks if it closes on us
        self._topic_seen_at: dict[str, float] = {}
        self._connections: dict[tuple[str, int], Connection] = {}
        self._opening: dict[tuple[str, int], asyncio.Lock] = {}
        self._coordinators: dict[tuple[str, str], BrokerAddress] = {}
        self._closed = False

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], **options: Any) -> Client:
        """From `bootstrap.servers`, `client.id` and security properties as librdkafka and Java clients take them."""
        if "bootstrap.servers" not in properties:
            raise ValueError("bootstrap.servers is missing; set it to host:port of one or more brokers")
        options.setdefault("client_id", properties.get("client.id", "penstock"))
        return cls(properties["bootstrap.servers"], security=Security.from_properties(properties), **options)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        self._closed = True
        connections, self._connections = list(self._connections.values()), {}
        for connection in connections:
            connection.close()
        await asyncio.sleep(0)  # lets the transports see that they are closed

    # --- connections ---

    async def connection(self, host: str, port: int) -> Connection:
        """The one connection to an address, opened on first use and again after it was lost."""
        if self._closed:
            raise ClientError("this client is closed")
        address = (host, port)
        async with self._opening.setdefault(address, asyncio.Lock()):
            current = self._connections.get(address)
            if current is not None and not current.closed and not current.expired:
                return current
            if current is not None and current.in_flight == 0:
                current.close()
            opened = await Connection.open(
                host, port, self.client_id, self.security, self._connect_timeout_s, self._request_timeout_s
            )
            if self._on_open is not None:
                try:
                    await self._on_open(opened)
                except BaseException:
                    opened.close()
                    raise
            self._connections[address] = opened
            return opened

    async def any_connection(self) -> Connection:
        """A live connection if there is one, else to the first known or bootstrap broker that answers."""
        live = [c for c in self._connections.values() if not c.closed and not c.expired]
        if live:
            return random.choice(live)
        known = [(b.host, b.port) for b in self.view.brokers.values()]
        random.shuffle(known)
        failures: list[str] = []
        for host, port in dict.fromkeys([*known, *self.bootstrap]):
            try:
                return await self.connection(host, port)
            except BrokerUnreachable as error:
                failures += error.reasons
            except ConnectionLost as error:
                failures.append(str(error))
        raise BrokerUnreachable(*failures)

    async def _ask_what_is_spoken(self) -> None:
        """Raises if we came with the wrong security.protocol, which no further try will make right."""
        if self._explain_silence and not self.view.brokers:  # who has had an answer has the right one
            from penstock.client.listener import refuse_another_protocol

            await refuse_another_protocol(self.bootstrap, self.security)

    async def finalized_feature(self, name: str) -> int:
        """The cluster's level of a feature (`transaction.version`, …); 0 when it has none."""
        return (await self.any_connection()).finalized_features.get(name, 0)

    # --- metadata ---

    async def metadata(self, topics: Iterable[str] | None = (), *, auto_create: bool = False) -> ClusterView:
        """Ask now: `None` for all topics, names for some, nothing for the brokers alone."""
        api = messages.api("metadata")
        names = None if topics is None else list(topics)
        entries = None if names is None else [api.MetadataRequestTopic(name=name) for name in names]
        request = api.Request(topics=entries, allow_auto_topic_creation=auto_create)
        attempts = Attempts(self.retry)
        while True:
            try:
                connection = await self.any_connection()
                response = await connection.request("metadata", request)
                break
            except (BrokerUnreachable, ConnectionLost):
                await self._ask_what_is_spoken()
                if not await attempts.pause():
                    raise
        now = asyncio.get_running_loop().time()
        newer = ClusterView.from_response(response)
        for name in newer.topics:
            self._topic_seen_at[name] = now
        self.view = self.view.merged_with(newer, all_topics=names is None)
        return self.view

    async def _leader(self, topic: str, partition: int, attempts: Attempts) -> BrokerAddress:
        """The partition's leader from the cache, or asked for until there is one."""
        seen_at = self._topic_seen_at.get(topic)
        if seen_at is not None and asyncio.get_running_loop().time() - seen_at > self._metadata_max_age_s:
            self.forget_topic(topic)
        while True:
            address = self.view.brokers.get(self.view.leader(topic, partition))
            if address is not None:
                return address
            view = await self.metadata([topic])
            if view.leader(topic, partition) in view.brokers:
                continue
            found = view.topics.get(topic)
            missing = found is None or bool(found.error_code) or partition not in found.partitions
            if not await attempts.pause(within_s=self.retry.missing_topic_wait_s if missing else None):
                code = found.error_code if found is not None and found.error_code else 0
                if not code:
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if missing else ErrorCode.LEADER_NOT_AVAILABLE
                raise KafkaError(code, f"{topic}-{partition}")

    async def leader_connection(self, topic: str, partition: int) -> Connection:
        """The connection to a partition's leader as far as we know."""
        address = await self._leader(topic, partition, Attempts(self.retry))
        return await self.connection(address.host, address.port)

    async def group_by_leader(
        self, partitions: Iterable[tuple[str, int]], attempts: Attempts
    ) -> list[list[tuple[str, int]]]:
        """The partitions, one list per leader."""
        keys = list(partitions)
        unknown = {topic for topic, partition in keys if self.view.leader(topic, partition) not in self.view.brokers}
        if unknown:
            await self.metadata(sorted(unknown))
        groups: dict[int, list[tuple[str, int]]] = {}
        for topic, partition in keys:
            address = await self._leader(topic, partition, attempts)
            groups.setdefault(address.node_id, []).append((topic, partition))
        return list(groups.values())

    def forget_topic(self, topic: str) -> None:
        """Leadership has moved: ask again before the next request."""
        topics = dict(self.view.topics)
        topics.pop(topic, None)
        self._topic_seen_at.pop(topic, None)
        self.view = ClusterView(self.view.cluster_id, self.view.controller_id, self.view.brokers, topics)

    async def _coordinator(self, kind: str, key: str, attempts: Attempts) -> BrokerAddress:
        known = self._coordinators.get((kind, key))
        if known is not None:
            return known
        api = messages.api("find_coordinator")
        request = api.Request(key_type=COORDINATOR_KINDS[kind], coordinator_keys=[key])
        request.key = key  # what versions before 4 carry instead of the list
        while True:
            connection = await self.any_connection()
            response = await connection.request("find_coordinator", request)
            found = response.coordinators[0] if response.coordinators else response
            if not found.error_code:
                address = BrokerAddress(found.node_id, found.host, found.port)
                self._coordinators[(kind, key)] = address
                return address
            retriable = KafkaError(found.error_code, "").retriable
            if not retriable or not await attempts.pause():
                raise KafkaError(found.error_code, f"coordinator of {kind} {key!r}", found.error_message)

    # --- calls ---

    async def call_any(self, api_name: str, message: Any, **options: Any) -> Any:
        """Ask any broker."""

        async def route(attempts: Attempts) -> Connection:
            return await self.any_connection()

        return await self._call(route, lambda: None, api_name, message, **options)

    async def call_broker(self, node_id: int, api_name: str, message: Any, **options: Any) -> Any:
        """Ask one broker by its id."""

        async def route(attempts: Attempts) -> Connection:
            address = self.view.brokers.get(node_id) or (await self.metadata()).brokers.get(node_id)
            while address is None:
                if not await attempts.pause(within_s=self.retry.missing_topic_wait_s):
                    known = ", ".join(str(i) for i in sorted(self.view.brokers)) or "none"
                    raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node_id}", f"live brokers: {known}")
                address = (await self.metadata()).brokers.get(node_id)
            return await self.connection(address.host, address.port)

        return await self._call(route, self._forget_brokers, api_name, message, **options)

    async def call_leader(self, topic: str, partition: int, api_name: str, message: Any, **options: Any) -> Any:
        """Ask the leader of a partition, following it when it moves."""

        async def route(attempts: Attempts) -> Connection:
            address = await self._leader(topic, partition, attempts)
            return await self.connection(address.host, address.port)

        return await self._call(route, lambda: self.forget_topic(topic), api_name, message, asks_leader=True, **options)

    async def call_coordinator(self, kind: str, key: str, api_name: str, message: Any, **options: Any) -> Any:
        """Ask the coordinator of a group, transactional id or share key, following it when it moves."""

        async def route(attempts: Attempts) -> Connection:
            address = await self._coordinator(kind, key, attempts)
            return await self.connection(address.host, address.port)

        def forget() -> None:
            self._coordinators.pop((kind, key), None)

        return await self._call(route, forget, api_name, message, **options)

    async def call_controller(self, api_name: str, message: Any, **options: Any) -> Any:
        """Ask the controller, following it when it moves."""

        async def route(attempts: Attempts) -> Connection:
            if self.view.controller_id not in self.view.brokers:
                await self.metadata()
            while self.view.controller_id not in self.view.brokers:
                if not await attempts.pause():
                    raise KafkaError(ErrorCode.NOT_CONTROLLER, "the cluster has no controller")
                await self.metadata()
            address = self.view.brokers[self.view.controller_id]
            return await self.connection(address.host, address.port)

        return await self._call(route, self._forget_brokers, api_name, message, **options)

    def _forget_brokers(self) -> None:
        self.view = ClusterView(self.view.cluster_id, -1, {}, self.view.topics)

    async def _call(
        self,
        route: Callable[[Attempts], Any],
        forget: Callable[[], None],
        api_name: str,
        message: Any,
        *,
        version: int | None = None,
        highest_version: int | None = None,
        timeout_s: float | None = None,
        total_timeout_s: float | None = None,
        retry_lost: bool = True,
        asks_leader: bool = False,
    ) -> Any:
        """Route, ask, and do so again while the answer says that another try may find the right broker.

        With `retry_lost=False` a request that may have taken effect before its connection broke is not repeated.
        With `asks_leader` a topic that the asked broker does not know, although another one named it the leader, is
        taken for a new one: brokers hear of a topic one after the other.
        """
        attempts = Attempts(self.retry, total_timeout_s)
        while True:
            sent = False
            try:
                connection = await route(attempts)
                chosen = version if version is not None else connection.version_for(api_name, highest_version)
                sent = True
                response = await connection.request(api_name, message, chosen, timeout_s)
            except (BrokerUnreachable, ConnectionLost):
                if sent and not retry_lost:
                    raise
                await self._ask_what_is_spoken()
                forget()
                if not await attempts.pause():
                    raise
                continue
            within_s = None
            if asks_leader and says_only(response, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                within_s = self.retry.missing_topic_wait_s
            elif not worth_another_try(response):
                return response
            forget()
            if not await attempts.pause(within_s):
                return response
