"""Topics that belong to the broker: clients may read them, and neither write, create nor delete them."""

from collections.abc import Mapping

from respool.model.cluster_settings import ControllerSettings
from respool.model.topic_config import MIB

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"

# What they are created with. They keep the latest per key for ever, and are synced before anyone is answered,
# whatever the broker's defaults for topics are.
_COORDINATOR_LOG = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    "respool.flush": "always",
    "segment.bytes": str(100 * MIB),
}

INTERNAL_TOPICS: Mapping[str, Mapping[str, str]] = {
    CONSUMER_OFFSETS: _COORDINATOR_LOG,
    # A decision to commit must be known to two, where there are two.
    TRANSACTION_STATE: {**_COORDINATOR_LOG, "min.insync.replicas": "2"},
}


def is_internal(name: str) -> bool:
    return name in INTERNAL_TOPICS


def internal_replication_factor(name: str, settings: ControllerSettings) -> int:
    """How many replicas it is to have, where there are so many brokers."""
    if name == TRANSACTION_STATE:
        return settings.transaction_state_topic_replication_factor
    return settings.offsets_topic_replication_factor
