"""Topics for tests, made through one admin client per broker."""

from itertools import count
from typing import Any

from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

TIMEOUT_S = 60.0
_numbers = count()


class Topics:
    """Make one topic per story: `topics.new("story", partitions=2, max_message_bytes="1000")`."""

    def __init__(self, address: str) -> None:
        self.admin = AdminClient({"bootstrap.servers": address, "log_level": 0})

    def new(
        self, name: str = "topic", *, partitions: int = 1, replicas: int = 1, **settings: Any
    ) -> str:
        """Create a topic with a name of its own and return it. Settings with `_` for `.`."""
        topic = f"{name}-{next(_numbers)}"
        self.create(topic, partitions=partitions, replicas=replicas, **settings)
        return topic

    def create(
        self, topic: str, *, partitions: int = 1, replicas: int = 1, **settings: Any
    ) -> None:
        config = {key.replace("_", "."): str(value) for key, value in settings.items()}
        wish = NewTopic(
            topic, num_partitions=partitions, replication_factor=replicas, config=config
        )
        self.admin.create_topics([wish], request_timeout=TIMEOUT_S)[topic].result(TIMEOUT_S)

    def view(self, name: str, *, of: str, where: str, listed: bool = False) -> str:
        """Create a view and return its name."""
        config = {"respool.view.of": of, "respool.view.where": where}
        if listed:
            config["respool.view.listed"] = "true"
        wish = NewTopic(name, config=config)
        self.admin.create_topics([wish], request_timeout=TIMEOUT_S)[name].result(TIMEOUT_S)
        return name

    def grow(self, topic: str, *, partitions: int) -> None:
        wish = NewPartitions(topic, partitions)
        self.admin.create_partitions([wish], request_timeout=TIMEOUT_S)[topic].result(TIMEOUT_S)

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic], request_timeout=TIMEOUT_S)[topic].result(TIMEOUT_S)
