"""Series of topics and partitions, read at each scrape.

Each broker reports what it serves: the traffic of its clients, and the size, age and end offsets of the partitions that
it leads. Summed over the brokers of a cluster, each message and each byte of a topic counts once, apart from replicas.
"""

from collections.abc import Callable, Collection, Iterator
from operator import add

from respool.broker.metadata.catalog import Catalog
from respool.broker.metrics.record_ages import RecordAges
from respool.broker.metrics.series_budget import OTHER_TOPICS, SeriesBudget, SeriesKind
from respool.broker.partitions.partition import Partition
from respool.broker.partitions.registry import Partitions
from respool.broker.partitions.topic_traffic import TopicTraffic
from respool.model.name_filter import NameFilter
from respool.ports.clock import Clock
from respool.ports.metrics import Family, Sample
from respool.replication.remote_replica import ReplicaLag

TOPIC = ("topic",)
PARTITION = ("topic", "partition")
REPLICA = ("topic", "partition", "replica")
# High watermark and log start; each replica adds two more.
SERIES_PER_PARTITION = 2
SERIES_PER_REPLICA = 2
# Bytes and messages in and out, the size, and the age of the oldest record.
SERIES_PER_TOPIC = 6


class TopicSeries:
    def __init__(
        self,
        *,
        partitions: Partitions,
        traffics: "TopicTraffics",
        ages: RecordAges,
        names: NameFilter,
        budget: SeriesBudget,
        catalog: Catalog,
        clock: Clock,
    ) -> None:
        self._partitions = partitions
        self._traffics = traffics
        self._ages = ages
        self._names = names
        self._budget = budget
        self._catalog = catalog
        self._clock = clock

    def collect(self) -> Iterator[Family]:
        """Yield all families. Nothing here iterates over all partitions at once: other tasks run between samples."""
        topics = {*self._catalog.image.topics, *self._partitions.topics()}
        self._traffics.retain(topics)
        yield from self._traffic(self._traffics.all())
        yield from self._logs()
        yield from self._ends()

    # -- by topic ----------------------------------------------------------------------------------------------------

    def _traffic(self, topics: tuple[TopicTraffic, ...]) -> Iterator[Family]:
        yield _counter(
            "respool_topic_messages_in_total",
            "Messages appended to partitions led here, by producers and coordinators.",
            ((one.labels, one.messages_in) for one in topics),
        )
        yield _counter(
            "respool_topic_bytes_in_total",
            "Bytes of record batches appended to partitions led here.",
            ((one.labels, one.bytes_in) for one in topics),
        )
        yield _counter(
            "respool_topic_messages_out_total",
            "Messages that consumers fetched here; not those of followers.",
            ((one.labels, one.messages_out) for one in topics),
        )
        yield _counter(
            "respool_topic_bytes_out_total",
            "Bytes of record batches that consumers fetched here; not those of followers.",
            ((one.labels, one.bytes_out) for one in topics),
        )

    def _logs(self) -> Iterator[Family]:
        yield Family(
            "respool_topic_size_bytes",
            "gauge",
            "Bytes of record batches in the partitions led here.",
            TOPIC,
            self._by_topic(_size, add),
        )
        now_ms = self._clock.now_ms()
        yield Family(
            "respool_topic_oldest_record_age_seconds",
            "gauge",
            "Age of the oldest record in the partitions led here, by its timestamp.",
            TOPIC,
            self._by_topic(lambda led: self._oldest_age(led, now_ms), max),
        )

    def _by_topic(
        self,
        value_of: Callable[[list[Partition]], float | None],
        merge: Callable[[float, float], float],
    ) -> Iterator[Sample]:
        """Yield one sample per topic that has a value, and one for all topics without series of their own."""
        other: float | None = None
        for topic in self._partitions.topics():
            led = [one for one in self._partitions.of_topic(topic) if _is_served(one)]
            value = value_of(led) if led else None
            if value is None:
                continue
            labels = led[0].traffic.labels
            if labels == (topic,):
                yield labels, value
            else:
                other = value if other is None else merge(other, value)
        if other is not None:
            yield (OTHER_TOPICS,), other

    def _oldest_age(self, led: list[Partition], now_ms: int) -> float | None:
        times = [time for one in led if (time := self._ages.oldest(one)) is not None]
        # A record with a timestamp in the future has age 0.
        return max(0, now_ms - min(times)) / 1000 if times else None

    # -- by partition ------------------------------------------------------------------------------------------------

    def _ends(self) -> Iterator[Family]:
        # Filled while the first family is generated; the other families follow it.
        rows: list[tuple[tuple[str, str], Partition]] = []
        lags: list[tuple[tuple[str, str, str], ReplicaLag]] = []
        yield Family(
            "respool_partition_high_watermark",
            "gauge",
            "The offset that consumers may read up to, of partitions led here.",
            PARTITION,
            self._high_watermarks(rows, lags),
        )
        yield Family(
            "respool_partition_log_start_offset",
            "gauge",
            "The first offset that is kept, of partitions led here.",
            PARTITION,
            ((labels, one.log_start) for labels, one in rows),
        )
        yield Family(
            "respool_replica_lag_messages",
            "gauge",
            "How many messages of the leader's log a follower does not have, according to the leader.",
            REPLICA,
            ((labels, lag.messages) for labels, lag in lags),
        )
        yield Family(
            "respool_replica_lag_seconds",
            "gauge",
            "How long ago a follower last had all of the leader's log; told by the leader.",
            REPLICA,
            ((labels, lag.behind_ms / 1000) for labels, lag in lags if lag.behind_ms is not None),
        )

    def _high_watermarks(
        self,
        rows: list[tuple[tuple[str, str], Partition]],
        lags: list[tuple[tuple[str, str, str], ReplicaLag]],
    ) -> Iterator[Sample]:
        now_ms = self._clock.monotonic_ms()
        dropped = 0
        names = set()
        for partition in self._partitions:
            leader = partition.leader
            topic, number = partition.name
            if leader is None or not partition.is_online or not self._names.passes(topic):
                continue
            names.add(partition.name)
            found = leader.replica_lags(now_ms)
            series = SERIES_PER_PARTITION + SERIES_PER_REPLICA * len(found)
            if not self._budget.admit(SeriesKind.PARTITION, partition.name, series):
                dropped += series
                continue
            labels = (topic, str(number))
            rows.append((labels, partition))
            lags += [((*labels, str(one.broker)), one) for one in found]
            yield labels, partition.high_watermark
        self._budget.retain(SeriesKind.PARTITION, names)
        self._budget.dropped[SeriesKind.PARTITION] = dropped


class TopicTraffics:
    """The traffic of all topics.

    Topics without series of their own, because of a filter or the limit on series, share one set of numbers. So each
    number only ever grows, and their sum is the broker's total.
    """

    def __init__(self, names: NameFilter, budget: SeriesBudget) -> None:
        self._names = names
        self._budget = budget
        self._by_topic: dict[str, TopicTraffic] = {}
        # Topics beyond the limit on series.
        self._dropped: set[str] = set()
        self._other = TopicTraffic(OTHER_TOPICS)

    def of(self, topic: str) -> TopicTraffic:
        """Return the counters of the topic, which are valid as long as it exists."""
        found = self._by_topic.get(topic)
        if found is not None:
            return found
        if not self._names.passes(topic):
            return self._other
        if not self._budget.admit(SeriesKind.TOPIC, topic, SERIES_PER_TOPIC):
            self._dropped.add(topic)
            return self._other
        found = self._by_topic[topic] = TopicTraffic(topic)
        return found

    def all(self) -> tuple[TopicTraffic, ...]:
        return (*self._by_topic.values(), self._other)

    def retain(self, topics: Collection[str]) -> None:
        """Set the topics that exist; others are no longer reported."""
        for topic in [one for one in self._by_topic if one not in topics]:
            del self._by_topic[topic]
        self._dropped.intersection_update(topics)
        self._budget.retain(SeriesKind.TOPIC, topics)
        self._budget.dropped[SeriesKind.TOPIC] = SERIES_PER_TOPIC * len(self._dropped)


def _is_served(partition: Partition) -> bool:
    return partition.leader is not None and partition.is_online


def _size(led: list[Partition]) -> float:
    return sum(one.log.size_bytes for one in led)


def _counter(name: str, help_text: str, samples: Iterator[Sample]) -> Family:
    return Family(name, "counter", help_text, TOPIC, samples)
