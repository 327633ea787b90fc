"""What the coordinator reads of a member's own words: which topics a consumer subscribes to.

The classic protocol leaves subscriptions to the clients; to the coordinator they are opaque bytes. Only to know
whether a group still reads a topic does it look into those of protocol type "consumer":

```
 0         2       6
 | version | count | topics: strings with a length of 2 | ...        later versions only add behind
```
"""

from collections.abc import Iterable

from respool.coordination.record_bytes import CoordinatorRecordDamaged, RecordReader

CONSUMER_PROTOCOL_TYPE = "consumer"


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """All topics that any of the members subscribes to, or None when one of them cannot be read."""
    topics: set[str] = set()
    try:
        for subscription in subscriptions:
            reader = RecordReader(subscription, what="a subscription")
            reader.int16()
            topics.update(reader.string() for _ in range(reader.count()))
    except CoordinatorRecordDamaged:
        return None
    return frozenset(topics)
