"""The broker: owns every part of one node and wires them together. The parts know nothing of each other's wiring.

Start: bind, open the store, load the logs, register, follow the image, then accept. Stop: the same backwards, after
what is in work has been answered. Handlers reach everything through the attributes below.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.base.clock import Clock, SystemClock
from penstock.base.metrics import Metrics
from penstock.broker.api.registry import REGISTRY
from penstock.broker.background import Background
from penstock.broker.coordinators import Coordinators
from penstock.broker.dispatch import Dispatcher
from penstock.broker.inter_broker import InterBroker
from penstock.broker.network.authentication import (
    broker_change_problem,
    close_removed_users,
    close_unknown_plain_users,
    new_authentication,
    start_tokens,
)
from penstock.broker.network.connection_limits import ConnectionLimits
from penstock.broker.network.doors import StartFailed, bind_listeners, cannot_listen, endpoints_told
from penstock.broker.network.listener import Listener
from penstock.broker.stats import BrokerStats, connect_sources
from penstock.cluster.controller_driver import ControllerDriver
from penstock.cluster.image import ImageDelta, MetadataImage
from penstock.cluster.image_holder import ImageHolder
from penstock.cluster.loading import holds_replicas, read_all_configs
from penstock.cluster.member import ClusterMember
from penstock.log.inspector import Inspector
from penstock.log.log_directory import is_known_folder, stored_node_id
from penstock.log.log_manager import LogManager
from penstock.replication.replica_manager import ReplicaManager
from penstock.security.authorizer import new_authorizer
from penstock.security.broker_proof import PROOF_FEATURE
from penstock.security.broker_secret import BrokerSecretKeeper
from penstock.store.interface import TreeStore

if TYPE_CHECKING:
    from penstock.base.settings import Settings
    from penstock.broker.quota_metering import QuotaMetering
    from penstock.security.acl_store import AclStore
    from penstock.security.quotas import ClientQuotas
    from penstock.security.token_keeper import TokenKeeper

__all__ = ["Broker", "StartFailed"]

logger = logging.getLogger(__name__)

DRAIN_SECONDS = 10.0
DEFAULT_NODE_ID = 1
KEEP_EVERYTHING = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""For the logs of topics whose overrides cannot be read."""


class Broker:
    """One node: `await start()`, serve until `await stop()`."""

    store: TreeStore
    log_manager: LogManager
    replicas: ReplicaManager
    controller: ControllerDriver  # on every node; at most one in the cluster is active
    image_holder: ImageHolder
    member: ClusterMember  # identity, registration, topic and config administration
    dispatcher: Dispatcher
    loop: asyncio.AbstractEventLoop

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        self.settings = settings
        self.clock: Clock = clock or SystemClock()
        self.registry = REGISTRY
        self.metrics = Metrics()
        self.stats = BrokerStats(self.metrics)
        self.listeners: list[Listener] = []
        self.node_id = settings.node_id if settings.node_id >= 0 else DEFAULT_NODE_ID
        self.cluster_id = ""
        self.stored_users: dict[str, dict[str, str]] = {}  # what counts until the first image is here
        self.groups: Any = None  # coordinator.group service
        self.transactions: Any = None  # coordinator.transaction service
        self.transaction_links: Any = None
        self.authorizer = new_authorizer(settings, self.metrics, self.clock)  # None: everybody may everything
        self.acls: AclStore | None = None
        self.quotas: ClientQuotas | None = None  # none while no quota is set
        self._metering: QuotaMetering | None = None
        self.authentication: Any = None
        self.tokens: TokenKeeper | None = None  # delegation tokens; None: not enabled
        self.secret_keeper: BrokerSecretKeeper | None = None  # what brokers prove themselves with; None: a node alone
        self.fetch_sessions: Any = None
        self.metrics_server: Any = None
        self.inter_broker = InterBroker(self)
        self.coordinators = Coordinators(self)
        self.inspector = Inspector()
        self.ready = False
        self._background: Background | None = None
        self._stopping: asyncio.Task[None] | None = None

    @property
    def image(self) -> MetadataImage:
        """The newest MetadataImage that this broker's replicas have taken in."""
        return self.replicas.image

    @property
    def bound_listeners(self) -> list[str]:
        """NAME://host:port of each listener, with the port that was bound."""
        return [f"{listener.name}://{listener.host or '0.0.0.0'}:{listener.port}" for listener in self.listeners]

    # Start -------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        self.loop = asyncio.get_running_loop()
        try:
            self._bind()
            await self._open_store()
            await self._load_logs()
            await self._join()
        except BaseException:
            await self._abandon()
            raise
        self._accept()
        self.dispatcher.release_clients()
        self.coordinators.start_soon()
        self.ready = True
        logger.info("broker=%d serves %s", self.node_id, ", ".join(self.bound_listeners))

    def _accept_brokers(self) -> None:
        if not self.settings.embedded:
            self.dispatcher.hold_clients()
            self._accept()

    def _accept(self) -> None:
        for listener in self.listeners:
            listener.start_accepting()

    def _bind(self) -> None:
        self.dispatcher = Dispatcher(self, self.loop)
        self.limits = ConnectionLimits(self.settings)
        self.authentication = new_authentication(self)
        bind_listeners(self)

    async def _open_store(self) -> None:
        """The cluster id and our own come from the store (and must fit to what the log folders say)."""
        self.store = self._new_store()
        alone = self.settings.embedded
        self.member = ClusterMember(
            self.settings,
            self.store,
            self.clock,
            dial=self.inter_broker.dial,
            dial_control=self.inter_broker.dial_control,
            features={} if alone else {PROOF_FEATURE: (0, 0)},
        )
        known_id = None
        if self.settings.node_id < 0:  # the id of our last life, else one for a node alone, else one from the cluster
            known_id = stored_node_id(Path(folder) for folder in self.settings.log_dirs)
            if known_id is None and self.settings.embedded:
                known_id = DEFAULT_NODE_ID
        await self.member.join(known_id)
        self.node_id = self.member.node_id
        self.cluster_id = self.member.cluster_id
        self.image_holder = self.member.images
        self.controller = self.member.controller
        if not alone:
            self.secret_keeper = BrokerSecretKeeper(self.store)
            await self.secret_keeper.start()
        if self.authorizer is not None:
            from penstock.security.acl_store import AclStore

            self.authorizer.on_change = self.dispatcher.access_changed
            self.acls = AclStore(self.store, self.clock, self.authorizer.take)
            await self.acls.start()
        await start_tokens(self)

    def _new_store(self) -> TreeStore:
        if not self.settings.embedded:
            from penstock.store.zookeeper import ZooKeeperStore

            return ZooKeeperStore(self.settings)
        from penstock.store.embedded import EmbeddedDatabase, EmbeddedStore

        path = self.settings["penstock.store.path"] or Path(self.settings.log_dirs[0]) / "penstock.db"
        return EmbeddedStore(EmbeddedDatabase(Path(path), self.clock))

    async def _load_logs(self) -> None:
        loaded = await read_all_configs(self.store)
        kept = {key: KEEP_EVERYTHING for key in loaded.unreadable if key[0] == "topic"}
        configs = {**loaded.overrides, **kept}
        self.settings.apply_dynamic(configs.get(("broker", ""), {}), configs.get(("broker", str(self.node_id)), {}))
        unknown = [folder for folder in self.settings.log_dirs if not is_known_folder(Path(folder))]
        self.stored_users = {name: dict(found) for (kind, name), found in configs.items() if kind == "user"}
        self._take_listener_settings()
        self.member.configs.check_broker = partial(broker_change_problem, self)
        self.log_manager = LogManager(
            [Path(directory) for directory in self.settings.log_dirs],
            lambda topic: self.settings.log_config(dict(configs.get(("topic", topic), {}))),
            self.clock,
            node_id=self.node_id,
            cluster_id=self.cluster_id,
            on_directory_failed=self._directory_failed,
            settings=self.settings,
            holds_replicas=bool(unknown) and await holds_replicas(self.store, self.node_id),
        )
        await self.loop.run_in_executor(None, self.log_manager.start)
        self.member.clean_stop = self.log_manager.clean_stop

    async def _join(self) -> None:
        self.replicas = ReplicaManager(
            self.node_id, self.settings, self.clock, self.log_manager, self.loop, self._replication()
        )
        self.replicas.on_dirty = self.dispatcher.schedule_flush
        self.replicas.on_replicas_failed = self._replicas_failed
        self.image_holder.offline_replicas = lambda: self.replicas.offline
        self.image_holder.given_up_replicas = self.replicas.given_up
        self.image_holder.unmade_replicas = self.log_manager.unmade_replicas
        self.image_holder.when_taken_in = self.replicas.settle_losses
        patience_s = self.settings["broker.session.timeout.ms"] / 1000
        self.image_holder.reaches_controller = lambda: self.replicas.replication.controller_out_of_reach_s < patience_s
        self.image_holder.subscribe(self._image_changed)
        self.image_holder.subscribe(self.replicas.prepare)
        self.image_holder.subscribe(self.replicas.apply)
        self.replicas.start()
        # In a cluster the first image comes over our own inter-broker listener, so that must be open before we wait
        # for it. A broker alone has its controller in the house: clients come when it knows what to tell them.
        await self.member.register(endpoints_told(self.settings, self.listeners), self._accept_brokers)
        self._background = Background(self, self.loop)
        self._background.start()
        await self._start_metrics()

    def _replication(self) -> Any:
        """How replicas reach other brokers; a broker with the embedded store has nobody to reach."""
        if self.settings.embedded:
            return None
        from penstock.replication.remote import RemoteReplication

        return RemoteReplication(
            self.node_id,
            self.settings,
            self.clock,
            broker_epoch=lambda: self.member.broker_epoch,
            connect=self.inter_broker.open,
            alter_partition=self.inter_broker.alter_partition,
            hosted=lambda: list(self.replicas.partitions.values()),
            on_failed=self._write_failed,
        )

    async def _start_metrics(self) -> None:
        address = self.settings["penstock.metrics.listener"]
        if address:
            from penstock.base.metrics_server import parse_address, start_metrics_server

            connect_sources(self)
            host, port = parse_address(address)
            try:
                self.metrics_server = await start_metrics_server(
                    self.metrics, host, port, healthy=lambda: True, ready=lambda: self.ready
                )
            except OSError as error:
                raise cannot_listen("penstock.metrics.listener", host, port, error) from error

    # What changes ------------------------------------------------------------------------------------------------

    def _image_changed(self, delta: ImageDelta, image: MetadataImage) -> None:
        """The member has taken in dynamic settings of this broker already: logs must follow."""
        kinds = {kind for kind, _ in delta.configs_changed}
        if kinds & {"user", "client", "ip"}:
            self._take_quotas(image)
        if "broker" in kinds:
            self.loop.call_soon(self.replicas.refresh_configs)
            self._take_listener_settings()
            close_unknown_plain_users(self)
        users = [name for kind, name in delta.configs_changed if kind == "user"]
        if users:
            close_removed_users(self, users, image)

    def _take_listener_settings(self) -> None:
        self.limits.take(self.settings)
        for listener in self.listeners:
            listener.take(self.settings)

    def _take_quotas(self, image: MetadataImage) -> None:
        if self._metering is None:
            from penstock.broker.quota_metering import QuotaMetering

            self._metering = QuotaMetering(self)
        self._metering.take(image)

    def _directory_failed(self, directory: Path, logs: list[Any]) -> None:
        logger.error("log directory=%s failed, %d replicas are off line", directory, len(logs))
        if hasattr(self, "replicas"):  # while loading, nobody uses them yet
            self.replicas.directory_failed(directory, logs)

    def _replicas_failed(self, partitions: list[tuple[str, int]]) -> None:
        task = self.loop.create_task(self.member.report_failed_replicas(partitions))
        self.dispatcher.tasks.add(task)
        task.add_done_callback(self.dispatcher.tasks.discard)

    def _write_failed(self, partition: Any, error: Exception) -> None:
        logger.error("%r could not be written: %s", partition, error)

    async def auto_create_topic(self, name: str) -> str | None:
        """Create a topic because a client asked about it; what went wrong, or None."""
        from penstock.broker.metadata.topic_creation import auto_create

        return await auto_create(self, name)

    # Stop --------------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Answer what is in work, flush, leave a clean folder. Safe to call more than once."""
        if self._stopping is None:
            self._stopping = asyncio.ensure_future(self._stop())
        await self._stopping

    async def _stop(self) -> None:
        logger.info("broker=%d stops", self.node_id)
        self.ready = False
        await self.member.controlled_shutdown()  # still serving: followers must catch up to take over
        self.dispatcher.draining = True
        for listener in self.listeners:
            listener.close()
        if self._background is not None:
            self._background.stop()
        await self._drain()
        await self.coordinators.stop()
        await self.image_holder.close()
        await self.replicas.stop()
        await self._close_connections()
        if self.metrics_server is not None:
            self.metrics_server.close()
        await self.inter_broker.close()
        if self.secret_keeper is not None:
            self.secret_keeper.stop()
        if self.tokens is not None:
            await self.tokens.stop()
        self.dispatcher.large.close()
        self.inspector.close()
        epochs = (self.member.incarnation, self.member.broker_epoch)
        await self.loop.run_in_executor(None, lambda: self.log_manager.stop(broker_epochs=epochs))
        if self.acls is not None:
            await self.acls.stop()
        await self.member.leave()

    async def _drain(self) -> None:
        """Let every connection finish its requests; long polls are answered with what is there."""
        connections = [connection for listener in self.listeners for connection in listener.connections]
        self.dispatcher.end_long_polls()
        for connection in connections:
            connection.close_gracefully()
        deadline = self.loop.time() + DRAIN_SECONDS
        while any(not connection.closed for connection in connections) and self.loop.time() < deadline:
            await asyncio.sleep(0.01)

    async def _close_connections(self) -> None:
        for listener in self.listeners:
            for connection in list(listener.connections):
                connection.close()
        for task in list(self.dispatcher.tasks):
            task.cancel()
        await asyncio.gather(*self.dispatcher.tasks, return_exceptions=True)

    async def _abandon(self) -> None:
        """A start that failed half-way leaves nothing behind: no port, no lock, no registration."""
        if self._background is not None:
            self._background.stop()
        for listener in self.listeners:
            listener.close()
        self.inspector.close()
        if hasattr(self, "log_manager"):
            await self.loop.run_in_executor(None, lambda: self.log_manager.stop(clean=False))
        if self.acls is not None:
            await self.acls.stop()
        if hasattr(self, "member"):
            await self.member.leave()
