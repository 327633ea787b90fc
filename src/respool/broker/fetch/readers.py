"""The two kinds of readers, consumers and followers: where each may read, up to which offset, and on which conditions.

|             | consumer                                              | follower                                     |
|-------------|-------------------------------------------------------|----------------------------------------------|
| reads from  | the leader; from v11 on also a follower               | the leader                                   |
| reads up to | the high watermark, or the last stable offset         | the log end                                  |
| must be     | fetching at or below the known high watermark         | a registered replica, in this leader epoch   |
| may be      | redirected to a replica in its own rack (KIP-392)     | behind: its fetch offset says what it has    |
| local reads | all that it may read, if files stay valid (`_stays`)  | committed records, if files stay valid       |

Partitions are read in another thread too, while the loop changes roles. So a role is read once, and used as it was.
"""

from collections.abc import Iterable
from typing import Protocol

from respool.broker.archive.archive import Archive
from respool.broker.fetch.sessions import FetchTarget
from respool.broker.memory import MemoryBudget
from respool.broker.partitions.partition import Partition
from respool.broker.partitions.registry import Partitions
from respool.broker.partitions.watermarks import ReadTo
from respool.broker.views.batch_filter import ViewCondition
from respool.broker.views.views import Views
from respool.broker.world import World
from respool.log.partition_log import PartitionLog
from respool.log.tag_query import TagQuery
from respool.model.cluster import ClusterImage, TopicImage
from respool.model.errors import (
    NotLeader,
    OffsetOutOfRange,
    RequestError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from respool.model.file_range import FILE_RANGE_VALID_MS
from respool.model.ids import BrokerId, LeaderEpoch, Offset, TopicId
from respool.model.settings import Settings
from respool.model.where import Where
from respool.ports.clock import Clock
from respool.ports.metrics import Counter
from respool.ports.offload import Offload
from respool.wire.hot_replies import FetchedPartition

FOLLOWERS_READ_FROM_VERSION = 11


class FetchBroker(Protocol):
    """What fetches need of the broker: `Broker`."""

    partitions: Partitions
    clock: Clock
    memory: MemoryBudget
    settings: Settings
    world: World
    offload: Offload
    local_read_bytes: Counter
    views: Views
    archive: Archive | None

    @property
    def image(self) -> ClusterImage: ...


class Reader(Protocol):
    @property
    def read_to(self) -> ReadTo: ...

    @property
    def with_empty(self) -> bool:
        """True for followers: a copy of the log includes batches that compaction left without records."""

    def find(self, target: FetchTarget) -> Partition:
        """Raises:
        RequestError: this reader may not read the partition here.
        """

    def condition(self, partition: Partition, target: FetchTarget) -> ViewCondition | None:
        """What the reader is shown of the log; None: everything, as it is stored.

        Raises:
            RequestError: the partition is not of the target any more.
        """

    def tag_query(self) -> TagQuery | None:
        """What the reader's own condition asks of tag indexes; None: nothing is passed over."""

    def check(self, partition: Partition, target: FetchTarget) -> None:
        """Raises:
        RequestError: this reader may not read from this offset.
        """

    def closer_replica(self, partition: Partition, target: FetchTarget) -> BrokerId | None:
        """The preferred read replica: another broker to read from (KIP-392)."""

    def end(
        self, log: PartitionLog, *, last_stable_offset: Offset, high_watermark: Offset
    ) -> Offset:
        """The offset before which the reader's records end."""

    def local_read_end(
        self, log: PartitionLog, *, last_stable_offset: Offset, high_watermark: Offset
    ) -> Offset | None:
        """The end of local reads: large reads below it use the log's files; None if local reads are not possible."""

    def has_more(
        self, partition: Partition, target: FetchTarget, fetched: FetchedPartition
    ) -> bool:
        """True if there is more to read than at the time of `fetched`."""


class ConsumerReader:
    def __init__(
        self,
        broker: FetchBroker,
        *,
        version: int,
        read_committed: bool,
        rack: str = "",
        is_mirror: bool = False,
        reads_locally: bool = False,
        wanted: Where | None = None,
    ) -> None:
        """`wanted`: the reader sifts the records itself, and needs no others."""
        self._broker = broker
        self._reads_from_followers = version >= FOLLOWERS_READ_FROM_VERSION
        self._read_committed = read_committed
        self._rack = rack
        self.read_to = ReadTo.STABLE if read_committed else ReadTo.COMMITTED
        self.with_empty = is_mirror
        self._reads_locally = reads_locally
        self._wanted = wanted

    def find(self, target: FetchTarget) -> Partition:
        partitions = self._broker.partitions
        find = partitions.find_readable if self._reads_from_followers else partitions.find_leader
        view = _view(self._broker, target)
        if view is not None and view.view is not None:
            partition = find(view.view.parent, target.partition)
            if partition.topic_id != view.view.parent_id:
                raise UnknownTopicOrPartition(f"the topic of view {view.name} was deleted")
            return partition
        return _of_topic(target, find(_topic_name(self._broker, target), target.partition))

    def condition(self, partition: Partition, target: FetchTarget) -> ViewCondition | None:
        view = _view(self._broker, target)
        # The image may have changed since `find`: without its view, a reader would be shown everything.
        log_of = target.topic if view is None or view.view is None else view.view.parent_id
        if log_of not in (partition.topic_id, partition.name.topic):
            raise UnknownTopicOrPartition(f"the view {target.topic} was deleted or replaced")
        if view is None and self.with_empty:
            # A mirror's copy of the log includes what is not shown yet.
            return None
        return self._broker.views.condition(partition.log.config, view, wanted=self._wanted)

    def tag_query(self) -> TagQuery | None:
        return None if self._wanted is None else self._broker.views.tag_query(self._wanted)

    def check(self, partition: Partition, target: FetchTarget) -> None:
        follower = partition.follower
        if follower is None:
            return
        try:
            follower.check_readable(Offset(target.fetch_offset))
        except OffsetOutOfRange as error:
            if self._rack and target.leader_epoch >= 0:
                raise
            # Without a rack, the consumer was redirected to no follower. Without an epoch, its metadata may be old: it
            # may believe that this broker leads, treat the follower's OFFSET_OUT_OF_RANGE as the leader's, and reset
            # its offset. NOT_LEADER makes it look up the leader instead.
            raise NotLeader(
                f"{partition.name}: this broker follows it, and lacks the offset: {error}"
            ) from error

    def closer_replica(self, partition: Partition, target: FetchTarget) -> BrokerId | None:
        if not self._rack:
            return None
        leader = partition.leader
        if leader is None:
            return None
        return leader.closest_replica(client_rack=self._rack, offset=Offset(target.fetch_offset))

    def end(
        self, log: PartitionLog, *, last_stable_offset: Offset, high_watermark: Offset
    ) -> Offset:
        del log
        return last_stable_offset if self._read_committed else high_watermark

    def local_read_end(
        self, log: PartitionLog, *, last_stable_offset: Offset, high_watermark: Offset
    ) -> Offset | None:
        if not self._reads_locally or not _stays(log):
            return None
        return self.end(log, last_stable_offset=last_stable_offset, high_watermark=high_watermark)

    def has_more(
        self, partition: Partition, target: FetchTarget, fetched: FetchedPartition
    ) -> bool:
        del target
        shown = partition.watermarks.shown
        if self._read_committed:
            return shown(partition.last_stable_offset) != fetched.last_stable_offset
        return shown(partition.high_watermark) != fetched.high_watermark


class FollowerReader:
    """Another broker, which follows the partition."""

    read_to = ReadTo.END
    with_empty = True

    def __init__(
        self,
        broker: FetchBroker,
        *,
        follower: BrokerId,
        broker_epoch: int,
        reads_locally: bool = False,
    ) -> None:
        self._broker = broker
        self._follower = follower
        self._broker_epoch = broker_epoch
        self._reads_locally = reads_locally

    @property
    def is_registered(self) -> bool:
        """True if the request has the epoch with which the broker is registered, which clients cannot know.

        Any client may claim to be a follower with an epoch larger than all others: `check` cannot tell that from an
        epoch that is not in our image yet. The memory reserved for followers is only for registered ones.
        """
        known = self._broker.image.brokers.get(self._follower)
        return known is not None and known.epoch == self._broker_epoch

    def hear(self, targets: Iterable[FetchTarget]) -> None:
        """Update the leader's state with the followers' fetch offsets: that is how records become committed."""
        now_ms = self._broker.clock.monotonic_ms()
        for target in targets:
            try:
                partition = self.find(target)
                self.check(partition, target)
                log = partition.log
                is_within = log.log_start <= target.fetch_offset <= log.log_end
                if not is_within or diverging_epoch(log, target) is not None:
                    # Such an offset says nothing about a common prefix of both logs.
                    continue
                partition.role.on_follower_fetch(
                    self._follower,
                    broker_epoch=self._broker_epoch,
                    leader_epoch=LeaderEpoch(target.leader_epoch),
                    durable_end=_durable_end(target),
                    log_start=Offset(target.log_start),
                    now_ms=now_ms,
                )
            except RequestError:
                # The reply will contain this error.
                continue

    def find(self, target: FetchTarget) -> Partition:
        name = _topic_name(self._broker, target)
        return _of_topic(target, self._broker.partitions.find_leader(name, target.partition))

    def condition(self, partition: Partition, target: FetchTarget) -> ViewCondition | None:
        del partition, target
        return None

    def tag_query(self) -> TagQuery | None:
        return None

    def check(self, partition: Partition, target: FetchTarget) -> None:
        partition.role.leading().check_fetch(
            self._follower,
            broker_epoch=self._broker_epoch,
            leader_epoch=LeaderEpoch(target.leader_epoch),
        )

    def closer_replica(self, partition: Partition, target: FetchTarget) -> BrokerId | None:
        del partition, target
        return None

    def end(
        self, log: PartitionLog, *, last_stable_offset: Offset, high_watermark: Offset
    ) -> Offset:
        del last_stable_offset, high_watermark
        return log.log_end

    def local_read_end(
        self, log: PartitionLog, *, last_stable_offset: Offset, high_watermark: Offset
    ) -> Offset | None:
        """Return the high watermark: only an unclean election truncates committed records.

        Without this limit: 1. A leader returns a file range above its high watermark. 2. It is deposed, truncates the
        range and writes other records there. 3. The follower reads a mix of both: a log that no leader ever had.
        """
        del last_stable_offset
        return high_watermark if self._reads_locally and _stays(log) else None

    def has_more(
        self, partition: Partition, target: FetchTarget, fetched: FetchedPartition
    ) -> bool:
        return not fetched.record_bytes and partition.log.log_end > target.fetch_offset


def _stays(log: PartitionLog) -> bool:
    """True if committed records are never truncated, and deleted files are kept while a file range is valid."""
    config = log.config
    may_be_truncated = config.unclean_leader_election_enable
    return not may_be_truncated and config.file_delete_delay_ms >= 2 * FILE_RANGE_VALID_MS


def _durable_end(target: FetchTarget) -> Offset:
    """A follower that omits durable_end is durable up to its fetch offset."""
    if 0 <= target.durable_end < target.fetch_offset:
        return Offset(target.durable_end)
    return Offset(target.fetch_offset)


def diverging_epoch(log: PartitionLog, target: FetchTarget) -> tuple[int, int] | None:
    """Return the epoch and offset at which the reader's log diverges (KIP-595); followers and some consumers ask."""
    if target.last_fetched_epoch < 0:
        return None
    if target.last_fetched_epoch == log.latest_epoch and target.fetch_offset <= log.log_end:
        # Nearly always the logs agree.
        return None
    epoch, end = log.end_of_epoch(LeaderEpoch(target.last_fetched_epoch))
    if epoch < target.last_fetched_epoch or end < target.fetch_offset:
        return epoch, end
    return None


def _view(broker: FetchBroker, target: FetchTarget) -> TopicImage | None:
    """The view that is read; None if it is a topic."""
    image = broker.image
    if not image.views:
        return None
    if isinstance(target.topic, str):
        return image.views.get(target.topic)
    return image.views_by_id.get(TopicId(target.topic))


def _topic_name(broker: FetchBroker, target: FetchTarget) -> str:
    name = target.topic
    if isinstance(name, str):
        return name
    topic = broker.image.topics_by_id.get(TopicId(name))
    if topic is None:
        raise UnknownTopicId(f"there is no topic with id {name}")
    return topic.name


def _of_topic(target: FetchTarget, partition: Partition) -> Partition:
    """Return the partition if its topic id matches: the image may have changed since the name was looked up."""
    if not isinstance(target.topic, str) and partition.topic_id != target.topic:
        raise UnknownTopicId(f"{partition.name} is not of the topic with id {target.topic}")
    return partition
