"""Internal topics: clients may read them, but not write, create or delete them."""

from collections.abc import Mapping

from respool.model.cluster_settings import ControllerSettings
from respool.model.topic_config import MIB

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
SHARE_GROUP_STATE = "__share_group_state"

# Their configuration, regardless of the broker's topic defaults: compacted, and synced before a reply is sent.
_COORDINATOR_LOG = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    "respool.flush": "always",
    "segment.bytes": str(100 * MIB),
}

INTERNAL_TOPICS: Mapping[str, Mapping[str, str]] = {
    CONSUMER_OFFSETS: _COORDINATOR_LOG,
    # A decision to commit must be on two replicas, if the topic has two.
    TRANSACTION_STATE: {**_COORDINATOR_LOG, "min.insync.replicas": "2"},
    # Updates of one share partition have one key and add up, so compaction would destroy them. The coordinator itself
    # deletes what no share partition needs any more.
    SHARE_GROUP_STATE: {
        **_COORDINATOR_LOG,
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "min.insync.replicas": "2",
    },
}


def is_internal(name: str) -> bool:
    return name in INTERNAL_TOPICS


def internal_replication_factor(name: str, settings: ControllerSettings) -> int:
    """The topic's replication factor, if there are enough brokers."""
    if name == TRANSACTION_STATE:
        return settings.transaction_state_topic_replication_factor
    if name == SHARE_GROUP_STATE:
        return settings.share_coordinator_state_topic_replication_factor
    return settings.offsets_topic_replication_factor
