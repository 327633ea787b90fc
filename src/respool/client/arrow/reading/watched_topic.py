"""What a read that goes on knows of its topic: who leads what, and whether it is still the topic that it was."""

import time
from uuid import UUID

from respool.client.arrow.errors import TopicRecreated
from respool.client.arrow.reading.cursor import Cursor
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.errors import BrokerRefused, BrokerUnreachable, UnknownTopic
from respool.client.kafka.metadata import Leader

DISCOVER_EVERY_S = 5.0
# A topic just made or moved, or a broker just started: not all brokers know a topic at once. After so long it is gone.
TOPIC_GONE_S = 10.0


class WatchedTopic:
    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        topic_id: UUID | None,
        *,
        known_partitions: int | None = None,
    ) -> None:
        """With `known_partitions` it looks for those that the topic gets meanwhile: all from this number on."""
        self.topic = topic
        self.topic_id = topic_id
        # Somebody found it wrong.
        self.is_stale = False
        self._cluster = cluster
        # The last known state; while brokers do not know the topic it may still be the same.
        self._seen = cluster.topic(topic)
        # Since when brokers say that there is no such topic.
        self._unknown_since: float | None = None
        self._known_partitions = known_partitions
        self._discover_at = time.monotonic() + DISCOVER_EVERY_S

    def leader_of(self, partition: int) -> Leader | None:
        """None while nobody leads it, or nobody has heard of it."""
        return self._seen.leaders.get(partition)

    def refresh(self, reading: Cursor) -> None:
        """Ask who leads what now. `reading` is where whoever reads it has come to, for the error.

        Raises:
            TopicRecreated: another topic has the name now.
            UnknownTopic: there is no such topic any more.
        """
        self.is_stale = False
        try:
            seen = self._cluster.refresh(self.topic)
        except (BrokerUnreachable, BrokerRefused):
            # The fetches fail too, and have their retry.
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
        """The partitions that the topic got since it was looked for them, which is not often. Else as `refresh`."""
        known = self._known_partitions
        if known is None or time.monotonic() < self._discover_at:
            return range(0)
        self._discover_at = time.monotonic() + DISCOVER_EVERY_S
        self.refresh(reading)
        self._known_partitions = self._seen.partitions
        return range(known, self._seen.partitions)
