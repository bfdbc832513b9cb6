"""Reading a replica: the checks of a fetch in Kafka's order, then regions of files, never bytes.

Everything that reads writes staged appends first, so that no reader sees an offset that is not in a file.
"""

from __future__ import annotations

from penstock.log.damage import UNREADABLE
from penstock.log.results import AbortedTransaction, OffsetOutOfRange, Region
from penstock.protocol.errors import ErrorCode
from penstock.replication.partition import NO_EPOCH, Bound, Partition

_NONE = int(ErrorCode.NONE)
_OUT_OF_RANGE = int(ErrorCode.OFFSET_OUT_OF_RANGE)

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5


class Fetched:
    """The answer for one partition. `region` is None when there is nothing to send."""

    __slots__ = (
        "aborted",
        "diverging_epoch",
        "error",
        "high_watermark",
        "last_stable_offset",
        "log_start_offset",
        "preferred_replica",
        "region",
    )

    def __init__(
        self,
        error: int = _NONE,
        high_watermark: int = -1,
        last_stable_offset: int = -1,
        log_start_offset: int = -1,
        region: Region | None = None,
        aborted: list[AbortedTransaction] | None = None,
        diverging_epoch: tuple[int, int] | None = None,
        preferred_replica: int = -1,
    ) -> None:
        self.error = error
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.region = region  # of penstock.log: file, position, length
        self.aborted = aborted  # read_committed: entries with producer_id and first_offset; else None
        self.diverging_epoch = diverging_epoch  # (epoch, end offset): the reader must truncate
        self.preferred_replica = preferred_replica

    @property
    def size(self) -> int:
        return 0 if self.region is None else self.region.length

    @property
    def answers_at_once(self) -> bool:
        """An error, a divergence or a hint to another replica is not worth waiting for more."""
        return self.error != _NONE or self.diverging_epoch is not None or self.preferred_replica >= 0


def epoch_error(partition: Partition, current_leader_epoch: int) -> int:
    """Fencing by the leader epoch that the asker believes in; -1 does not ask."""
    if current_leader_epoch == NO_EPOCH or current_leader_epoch == partition.leader_epoch:
        return _NONE
    if current_leader_epoch < partition.leader_epoch:
        return int(ErrorCode.FENCED_LEADER_EPOCH)
    return int(ErrorCode.UNKNOWN_LEADER_EPOCH)


def fetch(
    partition: Partition,
    fetch_offset: int,
    max_bytes: int,
    bound: int = Bound.HIGH_WATERMARK,
    *,
    at_least_one: bool = True,
    current_leader_epoch: int = NO_EPOCH,
    last_fetched_epoch: int = NO_EPOCH,
    leader_only: bool = True,
    client_rack: str = "",
) -> Fetched:
    """A consumer's read. Consumers of v11+ may read from a follower (`leader_only=False`), and are sent to one in their
    rack where `replica.selector.class` asks for that (KIP-392)."""
    error = epoch_error(partition, current_leader_epoch)
    if error == _NONE and leader_only and not partition.is_leader:
        error = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if error != _NONE:
        return Fetched(error)
    if partition.dirty:
        partition.write_now()
        partition.written()
    if client_rack and partition.rack_of is not None and partition.is_leader:
        preferred = partition.replica_in_rack(client_rack, fetch_offset)
        if preferred != partition.node_id:
            log = partition.log
            return Fetched(
                _NONE, log.high_watermark, log.last_stable_offset, log.log_start_offset, preferred_replica=preferred
            )
    return _read(partition, fetch_offset, max_bytes, bound, at_least_one, last_fetched_epoch)


def follower_fetch(
    partition: Partition,
    replica_id: int,
    replica_epoch: int,
    fetch_offset: int,
    log_start_offset: int,
    max_bytes: int,
    *,
    at_least_one: bool = True,
    current_leader_epoch: int = NO_EPOCH,
    last_fetched_epoch: int = NO_EPOCH,
    update: bool = True,
) -> Fetched:
    """A follower's fetch: it tells how far that follower is, and may so move the high watermark.

    `update=False` reads again at the end of a long poll without counting as a sign of life.
    """
    error = epoch_error(partition, current_leader_epoch)
    if error == _NONE and not partition.is_leader:
        error = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if error != _NONE:
        return Fetched(error)
    follower = partition.followers.get(replica_id)
    if follower is None:
        # The follower's metadata is ahead of ours (or behind): it will ask again.
        unknown = current_leader_epoch != NO_EPOCH
        return Fetched(int(ErrorCode.UNKNOWN_LEADER_EPOCH if unknown else ErrorCode.NOT_LEADER_OR_FOLLOWER))
    if not partition.accepts_broker_epoch(replica_id, replica_epoch):
        return Fetched(int(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    if partition.dirty:
        partition.write_now()
        partition.written()
    log = partition.log
    if last_fetched_epoch != NO_EPOCH:
        refused = _diverged(partition, fetch_offset, last_fetched_epoch)
        if refused is not None:
            return refused
    if fetch_offset < log.log_start_offset or fetch_offset > log.log_end_offset:
        return Fetched(_OUT_OF_RANGE)
    if update:
        partition.follower_fetched(follower, fetch_offset, log_start_offset, replica_epoch)
    if partition.leader_quota is None:
        return _read(partition, fetch_offset, max_bytes, Bound.LOG_END, at_least_one, NO_EPOCH)
    if partition.holds_back(replica_id):
        return Fetched(_NONE, log.high_watermark, log.last_stable_offset, log.log_start_offset)
    fetched = _read(partition, fetch_offset, max_bytes, Bound.LOG_END, at_least_one, NO_EPOCH)
    if fetched.region is not None:
        partition.sent_to(replica_id, fetched.region.length)
    return fetched


def _read(
    partition: Partition, fetch_offset: int, max_bytes: int, bound: int, at_least_one: bool, last_fetched_epoch: int
) -> Fetched:
    log = partition.log
    if last_fetched_epoch != NO_EPOCH:
        refused = _diverged(partition, fetch_offset, last_fetched_epoch)
        if refused is not None:
            return refused
    if fetch_offset < log.log_start_offset or fetch_offset > log.log_end_offset:
        return Fetched(_OUT_OF_RANGE)
    upper = partition.read_bound(bound)
    high_watermark = log.high_watermark
    last_stable = log.last_stable_offset
    aborted: list[AbortedTransaction] | None = [] if bound == Bound.LAST_STABLE else None
    if fetch_offset >= upper:
        return Fetched(_NONE, high_watermark, last_stable, log.log_start_offset, None, aborted)
    try:
        region = log.read(fetch_offset, max_bytes, upper, at_least_one)
        if isinstance(region, OffsetOutOfRange):
            return Fetched(_OUT_OF_RANGE)
        if aborted is not None and region.length:
            aborted = log.aborted_transactions(fetch_offset, region.next_offset)
    except UNREADABLE as error:
        return Fetched(int(log.damage.tell(fetch_offset, error)))
    return Fetched(_NONE, high_watermark, last_stable, log.log_start_offset, region, aborted)


def _diverged(partition: Partition, fetch_offset: int, last_fetched_epoch: int) -> Fetched | None:
    """KIP-595: the reader's last epoch ended here before the offset that it asks for."""
    log = partition.log
    epoch, end_offset = log.end_offset_for_epoch(last_fetched_epoch)
    if epoch == NO_EPOCH or fetch_offset < log.log_start_offset:
        return Fetched(_OUT_OF_RANGE)
    if epoch < last_fetched_epoch or end_offset < fetch_offset:
        return Fetched(
            _NONE,
            log.high_watermark,
            log.last_stable_offset,
            log.log_start_offset,
            diverging_epoch=(epoch, end_offset),
        )
    return None


def offset_for_leader_epoch(partition: Partition, current_leader_epoch: int, epoch: int) -> tuple[int, int, int]:
    """OffsetForLeaderEpoch. Returns (error, epoch, end offset)."""
    error = epoch_error(partition, current_leader_epoch)
    if error == _NONE and not partition.is_leader:
        error = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if error != _NONE:
        return error, NO_EPOCH, -1
    partition.write_now()
    found_epoch, end_offset = partition.log.end_offset_for_epoch(epoch)
    return _NONE, found_epoch, end_offset


def latest_offset_error(partition: Partition) -> int:
    """After an election "latest" is unknown until the high watermark has reached the new leader's epoch."""
    if partition.log.high_watermark < partition.leader_epoch_start_offset:
        return int(ErrorCode.OFFSET_NOT_AVAILABLE)
    return _NONE
