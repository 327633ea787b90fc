"""A request -> the handler named for its API. The one place that looks at what a handler could not handle."""

import logging
from collections.abc import Callable, Mapping
from typing import TypeAlias

from respool.broker.broker import Broker
from respool.broker.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
    txn_offset_commit,
    write_txn_markers,
)
from respool.broker.outcome import Outcome
from respool.wire.api_table import Api
from respool.wire.codec import Request

logger = logging.getLogger(__name__)

Handler: TypeAlias = Callable[[Request, Broker], Outcome]

HANDLERS: Mapping[int, Handler] = {
    Api.PRODUCE: produce.produce,
    Api.FETCH: fetch.fetch,
    Api.LIST_OFFSETS: list_offsets.list_offsets,
    Api.METADATA: metadata.metadata,
    Api.OFFSET_COMMIT: offset_commit.offset_commit,
    Api.OFFSET_FETCH: offset_fetch.offset_fetch,
    Api.FIND_COORDINATOR: find_coordinator.find_coordinator,
    Api.JOIN_GROUP: join_group.join_group,
    Api.HEARTBEAT: heartbeat.heartbeat,
    Api.LEAVE_GROUP: leave_group.leave_group,
    Api.SYNC_GROUP: sync_group.sync_group,
    Api.DESCRIBE_GROUPS: describe_groups.describe_groups,
    Api.LIST_GROUPS: list_groups.list_groups,
    Api.API_VERSIONS: api_versions.api_versions,
    Api.CREATE_TOPICS: create_topics.create_topics,
    Api.DELETE_TOPICS: delete_topics.delete_topics,
    Api.DELETE_RECORDS: delete_records.delete_records,
    Api.INIT_PRODUCER_ID: init_producer_id.init_producer_id,
    Api.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch.offset_for_leader_epoch,
    Api.ADD_PARTITIONS_TO_TXN: add_partitions_to_txn.add_partitions_to_txn,
    Api.ADD_OFFSETS_TO_TXN: add_offsets_to_txn.add_offsets_to_txn,
    Api.END_TXN: end_txn.end_txn,
    Api.WRITE_TXN_MARKERS: write_txn_markers.write_txn_markers,
    Api.TXN_OFFSET_COMMIT: txn_offset_commit.txn_offset_commit,
    Api.DESCRIBE_CONFIGS: describe_configs.describe_configs,
    Api.ALTER_CONFIGS: alter_configs.alter_configs,
    Api.ALTER_REPLICA_LOG_DIRS: alter_replica_log_dirs.alter_replica_log_dirs,
    Api.DESCRIBE_LOG_DIRS: describe_log_dirs.describe_log_dirs,
    Api.CREATE_PARTITIONS: create_partitions.create_partitions,
    Api.DELETE_GROUPS: delete_groups.delete_groups,
    Api.ELECT_LEADERS: elect_leaders.elect_leaders,
    Api.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs.incremental_alter_configs,
    Api.ALTER_PARTITION_REASSIGNMENTS: alter_partition_reassignments.alter_partition_reassignments,
    Api.LIST_PARTITION_REASSIGNMENTS: list_partition_reassignments.list_partition_reassignments,
    Api.OFFSET_DELETE: offset_delete.offset_delete,
    Api.DESCRIBE_CLUSTER: describe_cluster.describe_cluster,
    Api.DESCRIBE_PRODUCERS: describe_producers.describe_producers,
    Api.DESCRIBE_TRANSACTIONS: describe_transactions.describe_transactions,
    Api.LIST_TRANSACTIONS: list_transactions.list_transactions,
    Api.CONSUMER_GROUP_HEARTBEAT: consumer_group_heartbeat.consumer_group_heartbeat,
    Api.CONSUMER_GROUP_DESCRIBE: consumer_group_describe.consumer_group_describe,
    Api.LIST_CONFIG_RESOURCES: list_config_resources.list_config_resources,
    Api.DESCRIBE_TOPIC_PARTITIONS: describe_topic_partitions.describe_topic_partitions,
}


def handle(request: Request, broker: Broker) -> Outcome:
    """Start a request and return its outcome.

    Raises:
        CloseConnection: no reply can say what is wrong.
    """
    return HANDLERS[request.api.key](request, broker)
