"""A topic's retention settings, and whether messages of a given time may have been deleted."""

from dataclasses import dataclass

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.configs import ConfigResource, describe_configs
from respool.client.kafka.errors import BrokerRefused


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """A topic's limits for old messages. -1: no such limit."""

    ms: int
    bytes: int

    def may_have_deleted(self, since_ms: int, *, now_ms: int) -> bool:
        """Whether messages of this time or later may have been deleted."""
        return self.bytes >= 0 or (self.ms >= 0 and since_ms < now_ms - self.ms)


def retention_of(cluster: Cluster, topic: str) -> Retention | None:
    """Fetch the topic's retention; None if the broker does not report it.

    Raises:
        BrokerUnreachable: no broker answers.
    """

    def attempt() -> Retention | None:
        keys = ["retention.ms", "retention.bytes", "cleanup.policy"]
        try:
            found = describe_configs(cluster, ConfigResource.TOPIC, [topic], keys=keys)[topic]
        except BrokerRefused:
            return None
        values = {name: entry.value or "" for name, entry in found.items()}
        if "delete" not in values.get("cleanup.policy", ""):
            # Compaction removes only messages that newer ones replace.
            return Retention(ms=-1, bytes=-1)
        try:
            return Retention(ms=int(values["retention.ms"]), bytes=int(values["retention.bytes"]))
        except (KeyError, ValueError):
            return None

    return cluster.retrying(attempt)
