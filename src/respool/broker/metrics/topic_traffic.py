"""Bytes and messages in and out, by topic: plain numbers, counted per batch and read at a scrape.

Topics without series of their own, because of a filter or the limit on series, share one set of numbers. So each number
only ever grows, and their sum is the broker's total.
"""

from collections.abc import Collection

from respool.broker.metrics.series_budget import OTHER_TOPICS, SeriesBudget, SeriesKind
from respool.model.name_filter import NameFilter

# Bytes and messages in and out, the size, and the age of the oldest record.
SERIES_PER_TOPIC = 6


class TopicTraffic:
    __slots__ = ("bytes_in", "bytes_out", "labels", "messages_in", "messages_out")

    def __init__(self, topic: str) -> None:
        self.labels = (topic,)
        self.bytes_in = 0
        self.messages_in = 0
        self.bytes_out = 0
        self.messages_out = 0


class TopicTraffics:
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
