"""Limits how many new replicas are copied to this broker at once, and how fast, so that producers keep their bandwidth.

Only new replicas wait for a turn. A replica that was offline and catches up does not wait: until it has caught up, the
cluster lacks a copy. The rate limits apply to both: see `docs/cluster.md`.
"""

from collections.abc import Callable, Iterator, Mapping

from respool.broker.metadata.catalog import Catalog
from respool.broker.partitions.partition import Partition
from respool.cluster.copy_limit import due_copies, leader_shares, limited_leaders
from respool.model.cluster import ClusterImage, PartitionImage
from respool.model.cluster_settings import ControllerSettings
from respool.model.config_rules import LONG_MAX
from respool.model.ids import BrokerId, TopicPartition
from respool.pacing.token_bucket import NO_LIMIT, TokenBucket
from respool.ports.clock import Clock

# A partition with a longer wait is checked again in between, since its rate may have been raised.
WAIT_MS_MAX = 1000


class ReplicationThrottle:
    def __init__(
        self, *, me: BrokerId, catalog: Catalog, clock: Clock, settings: ControllerSettings
    ) -> None:
        self._me = me
        self._catalog = catalog
        self._clock = clock
        self._settings = settings
        self._due: frozenset[TopicPartition] = frozenset()
        # For all new replicas, for replicas throttled on this follower, and for those throttled on their leader.
        self._copies = TokenBucket()
        self._throttled = TokenBucket()
        self._from_leader: dict[BrokerId, TokenBucket] = {}
        # Called when more partitions are due than before.
        self.on_changed: Callable[[], None] = lambda: None

    def on_image(self) -> None:
        """Copies may have been added or completed, or their rates changed.

        Mostly nothing is being copied here; then this only checks for that, since there may be thousands of changes.
        """
        due = self._due
        self._due = frozenset()
        image = self._catalog.image
        if self._catches_up_anything(image):
            limited = limited_leaders(image) if image.broker_overrides else {}
            throttle: dict[BrokerId, tuple[TopicPartition, ...]] = {}
            if limited or self._copies_anything(image):
                throttle = due_copies(
                    self._catalog.view(settings=self._settings, with_strays=False)
                )
            self._due = frozenset(throttle.get(self._me, ()))
            self._set_rates(leader_shares(image, limited, throttle))
        if self._due - due:
            self.on_changed()

    def _set_rates(self, shares: Mapping[BrokerId, float]) -> None:
        now_ms = self._clock.monotonic_ms()
        config = self._catalog.broker_config()
        self._copies.set_rate(config.respool_copy_bytes_per_s_max or NO_LIMIT, now_ms=now_ms)
        rate = config.follower_replication_throttled_rate
        self._throttled.set_rate(rate if rate < LONG_MAX else NO_LIMIT, now_ms=now_ms)
        for leader in shares.keys() | self._from_leader.keys():
            bucket = self._from_leader.setdefault(leader, TokenBucket())
            bucket.set_rate(shares.get(leader, NO_LIMIT), now_ms=now_ms)

    def wait_ms(self, partition: Partition) -> int | None:
        """How long to wait before fetching: 0 to fetch now, None until it is this partition's turn."""
        follower = partition.follower
        assert follower is not None
        image = follower.image
        if self._me in image.isr:
            return 0
        if self._me in image.adding and partition.name not in self._due:
            return None
        now_ms = self._clock.monotonic_ms()
        waits = (
            bucket.wait_ms(now_ms=now_ms) for bucket in self._buckets_of(partition.name, image)
        )
        return min(max(waits, default=0), WAIT_MS_MAX)

    def on_copied(self, partition: Partition, byte_count: int) -> None:
        follower = partition.follower
        if follower is None or self._me in follower.image.isr:
            return
        now_ms = self._clock.monotonic_ms()
        for bucket in self._buckets_of(partition.name, follower.image):
            bucket.take(byte_count, now_ms=now_ms)

    def _buckets_of(self, of: TopicPartition, image: PartitionImage) -> Iterator[TokenBucket]:
        """Yield the rate limits that apply to this replica, which is not in sync."""
        if self._me in image.adding:
            yield self._copies
        topic = self._catalog.image.topics.get(of.topic)
        if topic is None:
            return
        if topic.config.follower_replication_throttled_replicas.has(of.partition, self._me):
            yield self._throttled
        given = topic.config.leader_replication_throttled_replicas
        if image.leader in self._from_leader and given.has(of.partition, image.leader):
            yield self._from_leader[image.leader]

    def _catches_up_anything(self, image: ClusterImage) -> bool:
        return any(
            self._me in one.replicas and self._me not in one.isr
            for topic in image.topics.values()
            for one in topic.partitions
        )

    def _copies_anything(self, image: ClusterImage) -> bool:
        return any(
            self._me in one.adding for topic in image.topics.values() for one in topic.partitions
        )
