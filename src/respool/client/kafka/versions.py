"""The one table of request versions that our clients send: the newest in its range that the broker serves, too.

Brokers that must be spoken to: Respool, and Kafka from 2.8 to 4.x. A range begins where the fields that we use begin.
Fields are given in the newest vocabulary; those that the version sent does not have are left out (`wire/shape.py`).
"""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from respool.wire.api_table import Api


class SaslApi(IntEnum):
    """Requests that only brokers with a login serve; ours are none yet, so they are not in their table."""

    SASL_HANDSHAKE = 17
    SASL_AUTHENTICATE = 36


AnyApi: TypeAlias = Api | SaslApi


class VersionRange(NamedTuple):
    """Both ends are included."""

    oldest: int
    newest: int


VERSIONS: Mapping[AnyApi, VersionRange] = MappingProxyType(
    {
        # 9 has the forms that `produce_request.py` writes; 12 is the last that names topics, not their ids.
        Api.PRODUCE: VersionRange(9, 12),
        # 12 has the epoch of the last fetched record (KIP-595), 13 topic ids.
        Api.FETCH: VersionRange(12, 13),
        # 7 has the time of the latest record (Kafka 3.0).
        Api.LIST_OFFSETS: VersionRange(5, 7),
        # Topic ids came with 10; what 11 takes away we use.
        Api.METADATA: VersionRange(10, 10),
        # Version 9 names the members of the next-generation protocol; 10 has topic ids.
        Api.OFFSET_COMMIT: VersionRange(8, 8),
        # The last with one group a request.
        Api.OFFSET_FETCH: VersionRange(7, 7),
        # The last with one key a request.
        Api.FIND_COORDINATOR: VersionRange(3, 3),
        # 5 has a reason.
        Api.LEAVE_GROUP: VersionRange(3, 5),
        Api.DESCRIBE_GROUPS: VersionRange(4, 5),
        # 4 filters by state (Kafka 2.6), 5 tells which protocol a group speaks (Kafka 3.8).
        Api.LIST_GROUPS: VersionRange(4, 5),
        # It names the client and tells all features; in 3 some are left out (KAFKA-17011).
        Api.API_VERSIONS: VersionRange(0, 4),
        Api.CREATE_TOPICS: VersionRange(5, 7),
        # The last that names topics, not their ids.
        Api.DELETE_TOPICS: VersionRange(4, 5),
        Api.DELETE_RECORDS: VersionRange(1, 2),
        # The first with an error code of its own for fenced producers.
        Api.INIT_PRODUCER_ID: VersionRange(4, 4),
        # The last with one transaction a request.
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
        Api.ALTER_PARTITION_REASSIGNMENTS: VersionRange(0, 0),
        Api.LIST_PARTITION_REASSIGNMENTS: VersionRange(0, 0),
        Api.OFFSET_DELETE: VersionRange(0, 0),
        Api.DESCRIBE_CLUSTER: VersionRange(0, 0),
        # Kafka 3.0 and later.
        Api.DESCRIBE_PRODUCERS: VersionRange(0, 0),
        Api.DESCRIBE_TRANSACTIONS: VersionRange(0, 0),
        # 1 filters by duration.
        Api.LIST_TRANSACTIONS: VersionRange(0, 1),
        Api.CONSUMER_GROUP_HEARTBEAT: VersionRange(0, 0),
        Api.CONSUMER_GROUP_DESCRIBE: VersionRange(0, 0),
        SaslApi.SASL_HANDSHAKE: VersionRange(1, 1),
        SaslApi.SASL_AUTHENTICATE: VersionRange(0, 2),
    }
)


class TransactionVersions(NamedTuple):
    """Versions that depend on how the cluster does transactions, not on what the broker serves."""

    produce: VersionRange
    txn_offset_commit: VersionRange
    end_txn: VersionRange


# With transactions of version 2 (KIP-890) writing adds a partition, and each transaction has an epoch of its own.
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

# Those that name topics. Asked for by id, a recreated topic is not taken for the one before.
FETCH_BY_NAME = VersionRange(12, 12)
# Those that know the time of the latest record.
LIST_OFFSETS_OF_MAX_TIMESTAMP = VersionRange(7, 7)
# Those that filter by duration.
LIST_TRANSACTIONS_BY_DURATION = VersionRange(1, 1)
