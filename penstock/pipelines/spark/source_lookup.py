"""Questions a source asks the cluster: which partitions there are, where they begin and end."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.client.errors import ClientError, KafkaError
from penstock.client.records import EARLIEST, LATEST
from penstock.client.sync import SyncClient
from penstock.pipelines.spark.clients import client_for
from penstock.pipelines.spark.options import OffsetRequest, SourceOptions
from penstock.pipelines.spark.source_offsets import TopicPartition
from penstock.protocol import messages
from penstock.protocol.errors import ErrorCode

log = logging.getLogger(__name__)


class DataLoss(Exception):
    """Records that should have been read are gone, and `failOnDataLoss` says to stop then."""


class NothingToRead(Exception):
    """A topic or partition that was named does not exist."""


class SourceLookup:
    """Stateless apart from its client; one per reader."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options

    @property
    def client(self) -> SyncClient:
        return client_for(self.options.properties)

    def partitions(self) -> dict[str, tuple[str, list[int]]]:
        """{topic: (topic id, partitions)} of what the options ask for and exists."""
        options = self.options
        if options.pattern is not None:
            expression = re.compile(options.pattern)
            view = self.client.metadata(None)
            matching = [
                name for name, topic in view.topics.items() if expression.fullmatch(name) and not topic.is_internal
            ]
            names = list(dict.fromkeys([*matching, *options.extra_topics]))
        else:
            named = [*options.topics, *(topic for topic, _ in options.assigned), *options.extra_topics]
            names = list(dict.fromkeys(named))
            view = self.client.metadata(names)
        found = {}
        for name in sorted(names):
            topic = view.topics.get(name)
            if topic is None or topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            if topic.error_code:
                raise KafkaError(topic.error_code, f"topic {name!r}")
            indexes = sorted(topic.partitions)
            if options.assigned and name not in options.extra_topics:
                asked = [partition for assigned, partition in options.assigned if assigned == name]
                missing = [partition for partition in asked if partition not in topic.partitions]
                if missing:
                    raise NothingToRead(f"assign: {name} has {len(indexes)} partitions, not number {missing[0]}")
                indexes = sorted(asked)
            found[name] = (str(topic.topic_id), indexes)
        return found

    def existing(self) -> dict[str, tuple[str, list[int]]]:
        """As `partitions`, but a topic that was named and is not there is an error."""
        found = self.partitions()
        named = [*self.options.topics, *(topic for topic, _ in self.options.assigned)]
        missing = sorted({name for name in named if name not in found})
        if missing:
            raise NothingToRead(f"topic {missing[0]!r} does not exist; create it first or correct subscribe")
        return found

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._offsets(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The end of what may be read: the last stable offset under read_committed, else the high watermark."""
        return self._offsets(dict.fromkeys(partitions, LATEST))

    def resolve(
        self, request: OffsetRequest, partitions: Sequence[TopicPartition], *, is_end: bool
    ) -> dict[TopicPartition, int]:
        """Real offsets for what an option asks; partitions it does not name are read from start to end."""
        wanted: dict[TopicPartition, int] = {}
        fixed: dict[TopicPartition, int] = {}
        named = request.by_partition
        extra = [key for key in partitions if key[0] in self.options.extra_topics and key not in named]
        keys = [key for key in partitions if key not in extra]
        unknown = sorted(set(request.by_partition) - set(keys))
        if unknown:
            topic, partition = unknown[0]
            raise NothingToRead(f"offsets are given for {topic}-{partition}, which is not among what is read")
        for key in keys:
            default = request.everywhere
            if default is None:
                default = LATEST if is_end else EARLIEST
            value = request.by_partition.get(key, default)
            is_real = not request.is_time and value >= 0
            (fixed if is_real else wanted)[key] = value
        found = self._offsets(wanted)
        late = [key for key, offset in found.items() if offset < 0]
        if late:
            if not is_end and not self.options.late_start_is_latest:
                topic, partition = late[0]
                raise NothingToRead(
                    f"{topic}-{partition} has no record at or after the starting time {wanted[late[0]]};"
                    " startingOffsetsByTimestampStrategy=latest would begin at its end"
                )
            found.update(self.latest(late))
        return {**fixed, **found, **(self.latest(extra) if is_end else self.earliest(extra))}

    def _offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        if not wanted:
            return {}
        answers = self.client.list_offsets(wanted, read_committed=self.options.read_committed)
        for (topic, partition), answer in answers.items():
            if answer.error_code:
                raise KafkaError(answer.error_code, f"offsets of {topic}-{partition}")
        return {key: answers[key].offset for key in wanted}

    def commit_group(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Show progress as a consumer group. Spark's checkpoint is what counts, so a failure here is only reported."""
        api = messages.api("offset_commit")
        topics: dict[str, list[int]] = {}
        for topic, partition in offsets:
            topics.setdefault(topic, []).append(partition)
        request = api.Request(
            group_id=group_id,
            generation_id_or_member_epoch=-1,
            topics=[
                _named(
                    api.request_struct("OffsetCommitRequestTopic")(
                        partitions=[
                            api.request_struct("OffsetCommitRequestPartition")(
                                partition_index=partition,
                                committed_offset=offsets[(topic, partition)],
                                committed_leader_epoch=-1,
                                committed_metadata="",
                            )
                            for partition in partitions
                        ]
                    ),
                    topic,
                )
                for topic, partitions in topics.items()
            ],
        )
        request.retention_time_ms = -1
        try:
            # Up to version 9 topics go by name.
            answer = self.client.call_coordinator(
                "group", group_id, "offset_commit", request, highest_version=9, total_timeout_s=10
            )
        except ClientError as error:
            log.warning("progress of group %s was not committed: %s", group_id, error)
            return
        codes = {partition.error_code for topic in answer.topics for partition in topic.partitions} - {0}
        if codes:
            log.warning("progress of group %s was not committed: %s", group_id, KafkaError(min(codes), "offset commit"))


def _named(struct: Any, name: str) -> Any:
    """Older versions name the topic, the newest knows it by id only: the class has no such parameter."""
    struct.name = name
    return struct
