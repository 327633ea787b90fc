"""The APIs of this broker and their versions. ApiVersions replies contain exactly this table.

Only list what is fully supported: clients pick the newest common version and rely on all of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType


class Api(IntEnum):
    """Kafka's API keys."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSpec:
    key: Api
    # As in Kafka's documentation.
    name: str
    # Supported versions, inclusive.
    version_min: int
    version_max: int
    # The oldest version advertised to clients; for Produce deliberately too low.
    advertised_min: int
    # False: between brokers only, so ApiVersions does not list it.
    is_announced: bool = True

    def serves(self, version: int) -> bool:
        return self.version_min <= version <= self.version_max


def _row(
    key: Api,
    name: str,
    version_min: int,
    version_max: int,
    *,
    advertised_min: int | None = None,
    is_announced: bool = True,
) -> ApiSpec:
    return ApiSpec(
        key=key,
        name=name,
        version_min=version_min,
        version_max=version_max,
        advertised_min=version_min if advertised_min is None else advertised_min,
        is_announced=is_announced,
    )


_ROWS = (
    # librdkafka before 2.11.1 disables features if Produce does not start at 0, though it never sends a version below 3
    # (KAFKA-18659).
    _row(Api.PRODUCE, "Produce", 3, 13, advertised_min=0),
    _row(Api.FETCH, "Fetch", 4, 18),
    _row(Api.LIST_OFFSETS, "ListOffsets", 1, 11),
    _row(Api.METADATA, "Metadata", 0, 13),
    # Version 10 of these two has topic ids instead of names, as version 13 of Produce and Fetch.
    _row(Api.OFFSET_COMMIT, "OffsetCommit", 2, 10),
    _row(Api.OFFSET_FETCH, "OffsetFetch", 1, 10),
    _row(Api.FIND_COORDINATOR, "FindCoordinator", 0, 6),
    # Old librdkafka disables groups without version 0 (KAFKA-19444); aiokafka knows 0 to 2 and 5.
    _row(Api.JOIN_GROUP, "JoinGroup", 0, 9),
    _row(Api.HEARTBEAT, "Heartbeat", 0, 4),
    _row(Api.LEAVE_GROUP, "LeaveGroup", 0, 5),
    _row(Api.SYNC_GROUP, "SyncGroup", 0, 5),
    _row(Api.DESCRIBE_GROUPS, "DescribeGroups", 0, 6),
    _row(Api.LIST_GROUPS, "ListGroups", 0, 5),
    # Clients up to Kafka 2.4 send the newest version listed, also one that they do not know (KAFKA-9577).
    _row(Api.SASL_HANDSHAKE, "SaslHandshake", 0, 1),
    _row(Api.API_VERSIONS, "ApiVersions", 0, 5),
    _row(Api.CREATE_TOPICS, "CreateTopics", 2, 7),
    _row(Api.DELETE_TOPICS, "DeleteTopics", 1, 6),
    _row(Api.DELETE_RECORDS, "DeleteRecords", 0, 2),
    _row(Api.INIT_PRODUCER_ID, "InitProducerId", 0, 5),
    _row(Api.OFFSET_FOR_LEADER_EPOCH, "OffsetForLeaderEpoch", 2, 4),
    # librdkafka and aiokafka use only version 0 of these, and hang or stop without it.
    _row(Api.ADD_PARTITIONS_TO_TXN, "AddPartitionsToTxn", 0, 5),
    _row(Api.ADD_OFFSETS_TO_TXN, "AddOffsetsToTxn", 0, 4),
    _row(Api.END_TXN, "EndTxn", 0, 5),
    _row(Api.WRITE_TXN_MARKERS, "WriteTxnMarkers", 1, 2),
    _row(Api.TXN_OFFSET_COMMIT, "TxnOffsetCommit", 0, 6),
    _row(Api.DESCRIBE_ACLS, "DescribeAcls", 1, 3),
    _row(Api.CREATE_ACLS, "CreateAcls", 1, 3),
    _row(Api.DELETE_ACLS, "DeleteAcls", 1, 3),
    _row(Api.DESCRIBE_CONFIGS, "DescribeConfigs", 1, 4),
    _row(Api.ALTER_CONFIGS, "AlterConfigs", 0, 2),
    _row(Api.ALTER_REPLICA_LOG_DIRS, "AlterReplicaLogDirs", 1, 2),
    _row(Api.DESCRIBE_LOG_DIRS, "DescribeLogDirs", 1, 5),
    _row(Api.SASL_AUTHENTICATE, "SaslAuthenticate", 0, 2),
    _row(Api.CREATE_PARTITIONS, "CreatePartitions", 0, 3),
    _row(Api.CREATE_DELEGATION_TOKEN, "CreateDelegationToken", 1, 3),
    _row(Api.RENEW_DELEGATION_TOKEN, "RenewDelegationToken", 1, 2),
    _row(Api.EXPIRE_DELEGATION_TOKEN, "ExpireDelegationToken", 1, 2),
    _row(Api.DESCRIBE_DELEGATION_TOKEN, "DescribeDelegationToken", 1, 3),
    _row(Api.DELETE_GROUPS, "DeleteGroups", 0, 3),
    _row(Api.ELECT_LEADERS, "ElectLeaders", 0, 2),
    _row(Api.INCREMENTAL_ALTER_CONFIGS, "IncrementalAlterConfigs", 0, 1),
    _row(Api.ALTER_PARTITION_REASSIGNMENTS, "AlterPartitionReassignments", 0, 1),
    _row(Api.LIST_PARTITION_REASSIGNMENTS, "ListPartitionReassignments", 0, 0),
    _row(Api.OFFSET_DELETE, "OffsetDelete", 0, 0),
    _row(Api.DESCRIBE_CLIENT_QUOTAS, "DescribeClientQuotas", 0, 1),
    _row(Api.ALTER_CLIENT_QUOTAS, "AlterClientQuotas", 0, 1),
    _row(Api.DESCRIBE_USER_SCRAM_CREDENTIALS, "DescribeUserScramCredentials", 0, 0),
    _row(Api.ALTER_USER_SCRAM_CREDENTIALS, "AlterUserScramCredentials", 0, 0),
    _row(Api.DESCRIBE_QUORUM, "DescribeQuorum", 0, 2),
    _row(Api.UPDATE_FEATURES, "UpdateFeatures", 0, 2),
    _row(Api.DESCRIBE_CLUSTER, "DescribeCluster", 0, 2),
    _row(Api.DESCRIBE_PRODUCERS, "DescribeProducers", 0, 0),
    _row(Api.UNREGISTER_BROKER, "UnregisterBroker", 0, 0),
    _row(Api.DESCRIBE_TRANSACTIONS, "DescribeTransactions", 0, 0),
    _row(Api.LIST_TRANSACTIONS, "ListTransactions", 0, 2),
    # librdkafka polls forever without an error if only 0 is listed; franz-go uses any listed version.
    _row(Api.CONSUMER_GROUP_HEARTBEAT, "ConsumerGroupHeartbeat", 0, 1),
    _row(Api.CONSUMER_GROUP_DESCRIBE, "ConsumerGroupDescribe", 0, 1),
    _row(Api.LIST_CONFIG_RESOURCES, "ListConfigResources", 0, 1),
    _row(Api.DESCRIBE_TOPIC_PARTITIONS, "DescribeTopicPartitions", 0, 0),
    _row(Api.SHARE_GROUP_HEARTBEAT, "ShareGroupHeartbeat", 1, 1),
    _row(Api.SHARE_GROUP_DESCRIBE, "ShareGroupDescribe", 1, 1),
    # librdkafka sends version -1 if only version 2 of ShareFetch is listed.
    _row(Api.SHARE_FETCH, "ShareFetch", 1, 2),
    _row(Api.SHARE_ACKNOWLEDGE, "ShareAcknowledge", 1, 2),
    _row(Api.INITIALIZE_SHARE_GROUP_STATE, "InitializeShareGroupState", 0, 0, is_announced=False),
    _row(Api.READ_SHARE_GROUP_STATE, "ReadShareGroupState", 0, 0, is_announced=False),
    _row(Api.WRITE_SHARE_GROUP_STATE, "WriteShareGroupState", 1, 1, is_announced=False),
    _row(Api.DELETE_SHARE_GROUP_STATE, "DeleteShareGroupState", 0, 0, is_announced=False),
    _row(
        Api.READ_SHARE_GROUP_STATE_SUMMARY,
        "ReadShareGroupStateSummary",
        1,
        1,
        is_announced=False,
    ),
    _row(Api.DESCRIBE_SHARE_GROUP_OFFSETS, "DescribeShareGroupOffsets", 0, 1),
    _row(Api.ALTER_SHARE_GROUP_OFFSETS, "AlterShareGroupOffsets", 0, 0),
    _row(Api.DELETE_SHARE_GROUP_OFFSETS, "DeleteShareGroupOffsets", 0, 0),
)

API_TABLE: Mapping[int, ApiSpec] = MappingProxyType({row.key: row for row in _ROWS})
