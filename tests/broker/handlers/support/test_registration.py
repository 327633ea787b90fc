"""Every API has one handler, in the file of its name, with the right that it needs."""

import inspect
from pathlib import Path

import pytest

from respool.broker import handlers
from respool.broker.dispatch import HANDLERS
from respool.broker.handlers.support.registration import REGISTERED, serves
from respool.broker.handlers.support.rights import READ_TOPIC, AnyRight, Right
from respool.wire.api_table import API_TABLE, Api

# What Kafka's brokers ask for; rights in one cell are all needed, each where it applies.
RIGHTS = {
    Api.PRODUCE: "WRITE topic; WRITE transactional_id; ALTER topic",
    Api.FETCH: "READ topic; CLUSTER_ACTION cluster",
    Api.LIST_OFFSETS: "DESCRIBE topic; CLUSTER_ACTION cluster",
    Api.OFFSET_FOR_LEADER_EPOCH: "DESCRIBE topic or CLUSTER_ACTION cluster",
    Api.METADATA: "DESCRIBE topic; CREATE cluster or CREATE topic",
    Api.DESCRIBE_TOPIC_PARTITIONS: "DESCRIBE topic",
    Api.CREATE_TOPICS: "CREATE cluster or CREATE topic; DESCRIBE_CONFIGS topic; READ topic",
    Api.DELETE_TOPICS: "DELETE cluster or DELETE topic; DESCRIBE topic",
    Api.CREATE_PARTITIONS: "ALTER topic",
    Api.DELETE_RECORDS: "DELETE topic",
    Api.DESCRIBE_PRODUCERS: "READ topic",
    Api.DESCRIBE_CONFIGS: "DESCRIBE_CONFIGS topic; DESCRIBE_CONFIGS group; DESCRIBE_CONFIGS cluster",
    Api.ALTER_CONFIGS: "ALTER_CONFIGS topic; ALTER_CONFIGS group; ALTER_CONFIGS cluster",
    Api.INCREMENTAL_ALTER_CONFIGS: "ALTER_CONFIGS topic; ALTER_CONFIGS group; ALTER_CONFIGS cluster",
    Api.LIST_CONFIG_RESOURCES: "DESCRIBE_CONFIGS cluster",
    Api.FIND_COORDINATOR: "DESCRIBE group; DESCRIBE transactional_id; CLUSTER_ACTION cluster",
    Api.JOIN_GROUP: "READ group",
    Api.SYNC_GROUP: "READ group",
    Api.HEARTBEAT: "READ group",
    Api.LEAVE_GROUP: "READ group",
    Api.CONSUMER_GROUP_HEARTBEAT: "READ group; DESCRIBE topic",
    Api.OFFSET_COMMIT: "READ group; READ topic",
    Api.OFFSET_FETCH: "DESCRIBE group; DESCRIBE topic",
    Api.OFFSET_DELETE: "DELETE group; READ topic",
    Api.DESCRIBE_GROUPS: "DESCRIBE group",
    Api.CONSUMER_GROUP_DESCRIBE: "DESCRIBE group; DESCRIBE topic",
    Api.DELETE_GROUPS: "DELETE group",
    Api.SHARE_GROUP_HEARTBEAT: "READ group; DESCRIBE topic",
    Api.SHARE_GROUP_DESCRIBE: "DESCRIBE group; DESCRIBE topic",
    Api.SHARE_FETCH: "READ group; READ topic",
    Api.SHARE_ACKNOWLEDGE: "READ group; READ topic",
    Api.INITIALIZE_SHARE_GROUP_STATE: "CLUSTER_ACTION cluster",
    Api.READ_SHARE_GROUP_STATE: "CLUSTER_ACTION cluster",
    Api.WRITE_SHARE_GROUP_STATE: "CLUSTER_ACTION cluster",
    Api.DELETE_SHARE_GROUP_STATE: "CLUSTER_ACTION cluster",
    Api.READ_SHARE_GROUP_STATE_SUMMARY: "CLUSTER_ACTION cluster",
    Api.DESCRIBE_SHARE_GROUP_OFFSETS: "DESCRIBE group; DESCRIBE topic",
    Api.ALTER_SHARE_GROUP_OFFSETS: "READ group; READ topic",
    Api.DELETE_SHARE_GROUP_OFFSETS: "DELETE group; READ topic",
    Api.LIST_GROUPS: "DESCRIBE cluster or DESCRIBE group",
    Api.INIT_PRODUCER_ID: "WRITE transactional_id; IDEMPOTENT_WRITE cluster or WRITE topic",
    Api.ADD_PARTITIONS_TO_TXN: "WRITE transactional_id; WRITE topic; CLUSTER_ACTION cluster",
    Api.ADD_OFFSETS_TO_TXN: "WRITE transactional_id; READ group",
    Api.END_TXN: "WRITE transactional_id",
    Api.TXN_OFFSET_COMMIT: "WRITE transactional_id; READ group; READ topic",
    Api.WRITE_TXN_MARKERS: "ALTER cluster or CLUSTER_ACTION cluster",
    Api.DESCRIBE_TRANSACTIONS: "DESCRIBE transactional_id; DESCRIBE topic",
    Api.LIST_TRANSACTIONS: "DESCRIBE transactional_id",
    Api.API_VERSIONS: "",
    Api.DESCRIBE_CLUSTER: "",
    Api.DESCRIBE_LOG_DIRS: "DESCRIBE cluster",
    Api.ALTER_REPLICA_LOG_DIRS: "ALTER cluster",
    Api.ELECT_LEADERS: "ALTER cluster",
    Api.ALTER_PARTITION_REASSIGNMENTS: "ALTER cluster",
    Api.LIST_PARTITION_REASSIGNMENTS: "DESCRIBE cluster",
    Api.DESCRIBE_QUORUM: "DESCRIBE cluster",
    Api.UPDATE_FEATURES: "ALTER cluster",
    Api.UNREGISTER_BROKER: "ALTER cluster",
    Api.SASL_HANDSHAKE: "",
    Api.SASL_AUTHENTICATE: "",
    Api.DESCRIBE_ACLS: "DESCRIBE cluster",
    Api.CREATE_ACLS: "ALTER cluster",
    Api.DELETE_ACLS: "ALTER cluster",
    Api.CREATE_DELEGATION_TOKEN: "CREATE_TOKENS user",
    Api.RENEW_DELEGATION_TOKEN: "",
    Api.EXPIRE_DELEGATION_TOKEN: "",
    Api.DESCRIBE_DELEGATION_TOKEN: "DESCRIBE delegation_token or DESCRIBE_TOKENS user",
    Api.DESCRIBE_CLIENT_QUOTAS: "DESCRIBE_CONFIGS cluster",
    Api.ALTER_CLIENT_QUOTAS: "ALTER_CONFIGS cluster",
    Api.DESCRIBE_USER_SCRAM_CREDENTIALS: "DESCRIBE cluster",
    Api.ALTER_USER_SCRAM_CREDENTIALS: "ALTER cluster",
}


def in_words(right: Right | AnyRight) -> str:
    choices = (right,) if isinstance(right, Right) else right.rights
    return " or ".join(f"{one.operation.name} {one.resource.name.lower()}" for one in choices)


def test_every_api_of_the_table_has_a_handler() -> None:
    assert HANDLERS.keys() == API_TABLE.keys() == set(Api)


@pytest.mark.parametrize("api", Api, ids=lambda api: api.name)
def test_a_handler_stands_in_the_file_of_its_api(api: Api) -> None:
    handler = HANDLERS[api]
    assert handler.__name__ == api.name.lower()
    package, _, module = handler.__module__.rpartition(".")
    assert module == api.name.lower()
    assert package.rpartition(".")[0] == handlers.__name__


def test_every_file_beside_the_support_package_is_a_handler() -> None:
    folder = Path(next(iter(handlers.__path__)))
    files = [one.stem for one in folder.glob("*/*.py") if one.parent.name != "support"]
    assert sorted(set(files) - {"__init__"}) == sorted(api.name.lower() for api in Api)
    assert [one.stem for one in folder.glob("*.py")] == ["__init__"]


@pytest.mark.parametrize("api", Api, ids=lambda api: api.name)
def test_every_api_says_which_rights_it_needs(api: Api) -> None:
    assert "; ".join(map(in_words, REGISTERED[api].rights)) == RIGHTS[api]


def test_a_handler_has_to_serve_the_versions_that_clients_are_told() -> None:
    with pytest.raises(AssertionError):
        serves(Api.HEARTBEAT, versions=(0, 3), rights=(READ_TOPIC,))(HANDLERS[Api.HEARTBEAT])


def test_an_api_has_no_second_handler() -> None:
    with pytest.raises(AssertionError, match="HEARTBEAT has two handlers"):
        serves(Api.HEARTBEAT, versions=(0, 4), rights=(READ_TOPIC,))(HANDLERS[Api.HEARTBEAT])


def test_registration_leaves_the_function_as_it_is() -> None:
    assert inspect.isfunction(HANDLERS[Api.HEARTBEAT])
