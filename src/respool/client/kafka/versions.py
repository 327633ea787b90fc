"""The table of request versions that this client sends: the newest one in its range that the broker supports.

Supported brokers are Respool, and Kafka from 2.8 to 4.x. A range begins with the first version that has all fields that
we use. Fields are named as in the newest version; those that the chosen version lacks are omitted (`wire/shape.py`).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from respool.wire.api_table import Api


class VersionRange(NamedTuple):
    """A range of versions; both ends are included."""

    oldest: int
    newest: int


VERSIONS: Mapping[Api, VersionRange] = MappingProxyType(
    {
        # 9 has the encoding that `produce_request.py` writes; 12 is the last with topic names instead of ids.
        Api.PRODUCE: VersionRange(9, 12),
        # 12 has the epoch of the last fetched record (KIP-595), 13 topic ids.
        Api.FETCH: VersionRange(12, 13),
        # 7 has the time of the latest record (Kafka 3.0).
        Api.LIST_OFFSETS: VersionRange(5, 7),
        # 10 adds topic ids; 11 removes a field that we use.
        Api.METADATA: VersionRange(10, 10),
        # Version 9 adds the members of KIP-848 groups; 10 has topic ids.
        Api.OFFSET_COMMIT: VersionRange(8, 8),
        # The last version with one group per request.
        Api.OFFSET_FETCH: VersionRange(7, 7),
        # The last version with one key per request.
        Api.FIND_COORDINATOR: VersionRange(3, 3),
        # 5 adds the reason.
        Api.LEAVE_GROUP: VersionRange(3, 5),
        Api.DESCRIBE_GROUPS: VersionRange(4, 5),
        # 4 filters by state (Kafka 2.6), 5 reports each group's protocol (Kafka 3.8).
        Api.LIST_GROUPS: VersionRange(4, 5),
        # 4 reports all features; 3 omits some (KAFKA-17011). Both name the client software.
        Api.API_VERSIONS: VersionRange(0, 4),
        Api.CREATE_TOPICS: VersionRange(5, 7),
        # The last version with topic names instead of ids.
        Api.DELETE_TOPICS: VersionRange(4, 5),
        Api.DELETE_RECORDS: VersionRange(1, 2),
        # The first version with a separate error code for fenced producers.
        Api.INIT_PRODUCER_ID: VersionRange(4, 4),
        # The last version with one transaction per request.
        Api.ADD_PARTITIONS_TO_TXN: VersionRange(3, 3),
        Api.ADD_OFFSETS_TO_TXN: VersionRange(3, 3),
        Api.END_TXN: VersionRange(3, 5),
        Api.WRITE_TXN_MARKERS: VersionRange(1, 1),
        Api.TXN_OFFSET_COMMIT: VersionRange(3, 5),
        Api.DESCRIBE_CONFIGS: VersionRange(1, 4),
        Api.DESCRIBE_LOG_DIRS: VersionRange(1, 4),
        Api.CREATE_PARTITIONS: VersionRange(1, 3),
        Api.DELETE_GROUPS: VersionRange(1, 2),
        Api.ELECT_LEADERS: VersionRange(1, 2),
        Api.INCREMENTAL_ALTER_CONFIGS: VersionRange(0, 1),
        Api.LIST_PARTITION_REASSIGNMENTS: VersionRange(0, 0),
        # The first version that lists topics.
        Api.LIST_CONFIG_RESOURCES: VersionRange(1, 1),
        Api.DESCRIBE_CLUSTER: VersionRange(0, 0),
        # Kafka 3.7 and later; other brokers than ours have no layouts of partitions.
        Api.DESCRIBE_TOPIC_PARTITIONS: VersionRange(0, 0),
        # Kafka 3.0 and later.
        Api.DESCRIBE_PRODUCERS: VersionRange(0, 0),
        Api.DESCRIBE_TRANSACTIONS: VersionRange(0, 0),
        # 1 filters by duration.
        Api.LIST_TRANSACTIONS: VersionRange(0, 1),
        Api.CONSUMER_GROUP_HEARTBEAT: VersionRange(0, 0),
        Api.CONSUMER_GROUP_DESCRIBE: VersionRange(0, 0),
        Api.DESCRIBE_USER_SCRAM_CREDENTIALS: VersionRange(0, 0),
        Api.ALTER_USER_SCRAM_CREDENTIALS: VersionRange(0, 0),
        # 3 names an owner (Kafka 3.3).
        Api.CREATE_DELEGATION_TOKEN: VersionRange(1, 3),
        Api.RENEW_DELEGATION_TOKEN: VersionRange(1, 2),
        Api.EXPIRE_DELEGATION_TOKEN: VersionRange(1, 2),
        Api.DESCRIBE_DELEGATION_TOKEN: VersionRange(1, 3),
        Api.SHARE_GROUP_HEARTBEAT: VersionRange(1, 1),
        Api.SHARE_GROUP_DESCRIBE: VersionRange(1, 1),
        # 2 can renew locks (Kafka 4.2).
        Api.SHARE_FETCH: VersionRange(1, 2),
        Api.SHARE_ACKNOWLEDGE: VersionRange(2, 2),
        Api.DESCRIBE_SHARE_GROUP_OFFSETS: VersionRange(1, 1),
        Api.DESCRIBE_ACLS: VersionRange(1, 3),
        Api.CREATE_ACLS: VersionRange(1, 3),
        Api.DELETE_ACLS: VersionRange(1, 3),
        Api.DESCRIBE_CLIENT_QUOTAS: VersionRange(0, 1),
        Api.ALTER_CLIENT_QUOTAS: VersionRange(0, 1),
        Api.ALTER_SHARE_GROUP_OFFSETS: VersionRange(0, 0),
        Api.SASL_HANDSHAKE: VersionRange(1, 1),
        Api.SASL_AUTHENTICATE: VersionRange(0, 2),
    }
)


class TransactionVersions(NamedTuple):
    """Versions that depend on the cluster's transaction protocol, not on the broker's supported versions."""

    produce: VersionRange
    txn_offset_commit: VersionRange
    end_txn: VersionRange


# With transaction version 2 (KIP-890) a write adds its partition, and each transaction has its own epoch.
TRANSACTIONS_V2 = TransactionVersions(
    produce=VersionRange(12, 12),
    txn_offset_commit=VersionRange(5, 5),
    end_txn=VersionRange(5, 5),
)
TRANSACTIONS_V1 = TransactionVersions(
    produce=VersionRange(9, 11),
    txn_offset_commit=VersionRange(3, 3),
    end_txn=VersionRange(3, 3),
)

# By topic name, not id. (By id, a recreated topic is not mistaken for the old one.)
FETCH_BY_NAME = VersionRange(12, 12)
# The versions that support the time of the latest record.
LIST_OFFSETS_OF_MAX_TIMESTAMP = VersionRange(7, 7)
# The versions that filter by duration.
LIST_TRANSACTIONS_BY_DURATION = VersionRange(1, 1)
