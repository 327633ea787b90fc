"""Partition counts of topics: fetched before a topic's first message, and refreshed for this client's own partitioners.

So the first `send` reports an unknown topic, not half a minute later.
"""

import time
from typing import Any

from respool.client.kafka.bootstrap import Bootstrap
from respool.client.messages import library
from respool.client.messages.errors import BadArgument, ClientError

# A topic may gain partitions; this client's own partitioners refresh the count after this time.
_OLD_SECONDS = 60.0
_REFRESH_SECONDS = 2.0


class TopicCounts:
    def __init__(self, kafka: Any, bootstrap: Bootstrap) -> None:
        self._kafka = kafka
        self._bootstrap = bootstrap
        # Topic -> number of partitions, and when it was fetched.
        self._told: dict[str, tuple[int, float]] = {}

    def __contains__(self, topic: object) -> bool:
        return topic in self._told

    def __getitem__(self, topic: str) -> int:
        return self._told[topic][0]

    def learn(self, topic: object, *, seconds: float = library.CONNECT_SECONDS) -> int:
        """Fetch the topic's partition count, and wait for the reply.

        Raises:
            UnknownTopic, BrokerUnreachable.
        """
        if not isinstance(topic, str) or not topic:
            raise BadArgument(f"a topic is a name, not {topic!r}")
        if not self._told:
            library.check_reachable(self._bootstrap)
        found = library.partitions_of(self._kafka, topic, self._bootstrap.servers, seconds=seconds)
        self._told[topic] = found, time.monotonic()
        return found

    def refresh(self) -> None:
        """Refresh outdated counts; if the broker does not answer, try again later."""
        for topic, (count, told_at) in list(self._told.items()):
            if time.monotonic() - told_at > _OLD_SECONDS:
                try:
                    self.learn(topic, seconds=_REFRESH_SECONDS)
                except ClientError:
                    self._told[topic] = count, time.monotonic()
