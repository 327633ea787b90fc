"""Which partitions may be copied to this broker now, and how fast: moving them leaves room for those who produce.

Only new replicas wait for their turn. One that was away and catches up does not: the cluster is not safe until it has.
"""

from collections.abc import Callable

from respool.broker.catalog import Catalog
from respool.broker.partition import Partition
from respool.cluster.throttle import copies_now
from respool.cluster.view import ClusterSettings
from respool.model.ids import BrokerId, TopicPartition
from respool.ports.clock import Clock


class CopyTurns:
    def __init__(
        self,
        *,
        me: BrokerId,
        catalog: Catalog,
        clock: Clock,
        settings: ClusterSettings,
        bytes_per_s_max: int,
    ) -> None:
        """`bytes_per_s_max` of 0: as fast as it goes."""
        self._me = me
        self._catalog = catalog
        self._clock = clock
        self._settings = settings
        self._bytes_per_s_max = bytes_per_s_max
        self._due: frozenset[TopicPartition] = frozenset()
        # Until then the bytes that came have used up what may come.
        self._free_at_ms = 0.0
        # Told when others may be due than before.
        self.on_changed: Callable[[], None] = lambda: None

    def on_image(self) -> None:
        """Somebody's copy may have come or ended."""
        due = self._due
        self._due = frozenset()
        if self._copies_anything():
            turns = copies_now(self._catalog.view(settings=self._settings))
            self._due = frozenset(turns.get(self._me, ()))
        if self._due - due:
            self.on_changed()

    def wait_ms(self, partition: Partition) -> int | None:
        """How long to wait before fetching: 0 for now, None for until it is this one's turn."""
        follower = partition.follower
        assert follower is not None
        image = follower.image
        if self._me not in image.adding or self._me in image.isr:
            return 0
        if partition.name not in self._due:
            return None
        return max(0, round(self._free_at_ms - self._clock.monotonic_ms()))

    def on_copied(self, partition: Partition, byte_count: int) -> None:
        follower = partition.follower
        if not self._bytes_per_s_max or follower is None or self._me not in follower.image.adding:
            return
        began_ms = max(self._free_at_ms, float(self._clock.monotonic_ms()))
        self._free_at_ms = began_ms + byte_count * 1000 / self._bytes_per_s_max

    def _copies_anything(self) -> bool:
        return any(
            self._me in one.adding
            for topic in self._catalog.image.topics.values()
            for one in topic.partitions
        )
