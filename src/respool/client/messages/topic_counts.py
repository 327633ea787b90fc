"""How many partitions topics have: asked once before the first message, and again where we choose among them.

Asking first means that a topic which is not there is said at the first `send`, and not half a minute later.
"""

import time
from typing import Any

from respool.client.kafka.bootstrap import Bootstrap
from respool.client.messages import library
from respool.client.messages.errors import BadArgument, ClientError

# A topic may get more partitions; who chooses among them asks again after this.
_OLD_SECONDS = 60.0
_REFRESH_SECONDS = 2.0


class TopicCounts:
    def __init__(self, kafka: Any, bootstrap: Bootstrap) -> None:
        self._kafka = kafka
        self._bootstrap = bootstrap
        # Topic -> number of partitions, and when we were told.
        self._told: dict[str, tuple[int, float]] = {}

    def __contains__(self, topic: object) -> bool:
        return topic in self._told

    def __getitem__(self, topic: str) -> int:
        return self._told[topic][0]

    def learn(self, topic: object, *, seconds: float = library.CONNECT_SECONDS) -> int:
        """Ask, and wait for the answer.

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
        """Ask again for what was told long ago; a broker that is away is asked later."""
        for topic, (count, told_at) in list(self._told.items()):
            if time.monotonic() - told_at > _OLD_SECONDS:
                try:
                    self.learn(topic, seconds=_REFRESH_SECONDS)
                except ClientError:
                    self._told[topic] = count, time.monotonic()
