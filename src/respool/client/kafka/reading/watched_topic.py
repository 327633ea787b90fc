"""The topic of a running read: its current leaders and closer replicas, and whether it was deleted or recreated."""

import time
from uuid import UUID

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.errors import BrokerRefused, BrokerUnreachable, UnknownTopic
from respool.client.kafka.metadata import PartitionLeader
from respool.client.kafka.reading.cursor import Cursor
from respool.client.kafka.reading.read_errors import TopicRecreated

DISCOVER_EVERY_S = 5.0
# Not all brokers know a topic at once if it was just created or moved, or a broker just started. After this time the
# topic is considered deleted.
TOPIC_GONE_S = 10.0
# After this time the leader is asked again: another replica may be closer by then.
NAMED_FOR_S = 300.0
# Leaders would keep naming a replica that the reader cannot use, so for this time the reader sends no rack.
AVOIDED_FOR_S = 60.0


class WatchedTopic:
    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        topic_id: UUID | None,
        *,
        known_partitions: int | None = None,
    ) -> None:
        """With `known_partitions`, it looks for partitions that are added to the topic: all from this number on."""
        self.topic = topic
        self.topic_id = topic_id
        # A fetch has shown that the metadata is outdated.
        self.is_stale = False
        self._cluster = cluster
        # The last known metadata; it may still be valid while brokers do not know the topic.
        self._seen = cluster.topic(topic)
        # Since when brokers have reported the topic as unknown.
        self._unknown_since: float | None = None
        self._known_partitions = known_partitions
        self._discover_at = time.monotonic() + DISCOVER_EVERY_S

    def leader_of(self, partition: int) -> PartitionLeader | None:
        """None if the partition has no leader or is unknown."""
        return self._seen.leaders.get(partition)

    def is_retired(self, partition: int) -> bool:
        """True if the partition was taken away: sealed, and retired. When the topic grows, another one may have its
        number, which is new.
        """
        if partition in self._seen.leaders:
            return False
        if self._known_partitions is not None:
            self._known_partitions = min(self._known_partitions, partition)
        return True

    def refresh(self, reading: Cursor) -> None:
        """Fetch the topic's metadata. `reading` supplies the partition and position for the error.

        Raises:
            TopicRecreated: another topic now has the name.
            UnknownTopic: the topic does not exist any more.
        """
        self.is_stale = False
        try:
            seen = self._cluster.refresh(self.topic)
        except (BrokerUnreachable, BrokerRefused):
            # The fetches fail as well, and are retried.
            return
        except UnknownTopic:
            now = time.monotonic()
            self._unknown_since = self._unknown_since or now
            if now - self._unknown_since > TOPIC_GONE_S:
                raise
            return
        self._unknown_since = None
        if self.topic_id is not None and seen.id != self.topic_id:
            raise TopicRecreated(
                f"the topic was deleted and made again (id {self.topic_id} before, {seen.id} now), its messages are "
                "others: read it from its start",
                topic=self.topic,
                partition=reading.partition,
                offset=reading.position,
            )
        self._seen = seen

    def discover(self, reading: Cursor) -> range:
        """The partitions added since the last check, which is made every few seconds. Otherwise like `refresh`."""
        known = self._known_partitions
        if known is None or time.monotonic() < self._discover_at:
            return range(0)
        self._discover_at = time.monotonic() + DISCOVER_EVERY_S
        self.refresh(reading)
        self._known_partitions = self._seen.partitions
        return range(known, self._seen.partitions)


class PreferredReplicas:
    """The replicas that leaders have named as closer to the reader (KIP-392), each until it fails or its time is up."""

    def __init__(self) -> None:
        self._named: dict[int, tuple[int, float]] = {}
        self._avoided_until: dict[int, float] = {}

    def on_named(self, partition: int, broker: int, now: float) -> None:
        self._named[partition] = broker, now + NAMED_FOR_S

    def of(self, partition: int, now: float) -> int | None:
        broker, until = self._named.get(partition, (None, 0.0))
        return broker if now < until else None

    def leave(self, partition: int, now: float) -> bool:
        """Return to the leader for a while; returns False if the partition was already fetched from its leader."""
        if self._named.pop(partition, None) is None:
            return False
        self._avoided_until[partition] = now + AVOIDED_FOR_S
        return True

    def may_be_named(self, partition: int, now: float) -> bool:
        """Whether to send the reader's rack to the leader."""
        return now >= self._avoided_until.get(partition, 0.0)
