"""One request of each API about the same few resources, in every version; and what an ACL must allow for it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from broker.running_broker import RunningBroker
from respool.model.security.acl import AclOperation, AclResource
from respool.records.build import NewRecord, build_batch
from respool.wire.api_table import Api

TOPIC, GROUP, TXN_ID, NEW_TOPIC = "orders", "billing", "mover", "fresh"
SHARE_GROUP = "billing-shared"

Op = AclOperation
_T, _G, _C, _X = (
    AclResource.TOPIC,
    AclResource.GROUP,
    AclResource.CLUSTER,
    AclResource.TRANSACTIONAL_ID,
)
CODES = {_T: 29, _G: 30, _C: 31, _X: 53}
DENIALS = frozenset(CODES.values())

HeldRight = tuple[AclOperation, AclResource]
# One of them is enough.
Step = tuple[HeldRight, ...]


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A request, and the rights that it needs, in the order in which Kafka asks for them.

    Without the rights of a step the reply has the code of its last right; `is_silent`: what is missing is left out.
    """

    api: Api
    steps: tuple[Step, ...]
    fields: Callable[[RunningBroker, int], Mapping[str, Any]]
    versions: Callable[[int], bool] = lambda _: True
    is_silent: bool = False
    # No ACL is enough: the client must have proved that it is a broker.
    needs_broker: bool = False
    name: str = ""

    def __str__(self) -> str:
        return f"{self.api.name}{self.name and '-' + self.name}"

    def denial(self, held: HeldRight | None) -> int:
        """The code for a client that holds this right only; 0: none."""
        for step in self.steps:
            if self.needs_broker or not any(_covers(held, right) for right in step):
                return CODES[step[-1][1]]
        return 0


def _covers(held: HeldRight | None, needed: HeldRight) -> bool:
    if held is None or held[1] is not needed[1]:
        return False
    if held[0] is needed[0]:
        return True
    if needed[0] is Op.DESCRIBE:
        return held[0] in (Op.READ, Op.WRITE, Op.DELETE, Op.ALTER)
    return needed[0] is Op.DESCRIBE_CONFIGS and held[0] is Op.ALTER_CONFIGS


def _batch(broker: RunningBroker, **batch: Any) -> bytes:
    return build_batch([NewRecord(value=b"v", timestamp_ms=broker.clock.now_ms())], **batch)


def _produce(broker: RunningBroker, *, transactional: bool, version: int) -> dict[str, Any]:
    del version
    batch = (
        {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
        if transactional
        else {}
    )
    part = {"index": 0, "records": _batch(broker, **batch)}
    return {
        "transactional_id": TXN_ID if transactional else None,
        "acks": -1,
        "timeout": 100,
        "topic_data": [{**broker.topic_ref(TOPIC), "partition_data": [part]}],
    }


def _fetch(broker: RunningBroker, version: int, *, replica: int = -1) -> dict[str, Any]:
    part = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1_000,
        "replica_directory_id": None,
        "high_watermark": -1,
    }
    ref = broker.topic_ref(TOPIC)
    return {
        "cluster_id": None,
        "replica_id": replica,
        "replica_state": {"replica_id": replica, "replica_epoch": -1},
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": 1_000,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": TOPIC, "topic_id": ref["topic_id"], "partitions": [part]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }


def _offsets(broker: RunningBroker, **fields: Any) -> dict[str, Any]:
    part = {
        "partition_index": 0,
        "committed_offset": 0,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
    return {
        "group_id": GROUP,
        "generation_id_or_member_epoch": -1,
        "generation_id": -1,
        "member_id": "",
        "group_instance_id": None,
        "retention_time": -1,
        "topics": [{**broker.topic_ref(TOPIC), "partitions": [part]}],
        **fields,
    }


def _delete_topic(broker: RunningBroker, _version: int) -> dict[str, Any]:
    if broker.broker.image.readable(TOPIC) is None:
        broker.create_topic(TOPIC)
    return {
        "topic_names": [TOPIC],
        "topics": [{"name": TOPIC, "topic_id": None}],
        "timeout": 100,
    }


def _static(**fields: Any) -> Callable[[RunningBroker, int], Mapping[str, Any]]:
    return lambda _broker, _version: fields


_FILTER = {
    "resource_type_filter": 2,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": "User:nobody",
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
_CREATION = {
    "resource_type": 2,
    "resource_name": TOPIC,
    "resource_pattern_type": 3,
    "principal": "User:bob",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
_CONFIG = {"name": "retention.ms", "value": "1000000", "config_operation": 0}
_GROUP_CONFIG = {"name": "consumer.heartbeat.interval.ms", "value": "5000", "config_operation": 0}
_BROKER_CONFIG = {
    "name": "leader.replication.throttled.rate",
    "value": "1000000",
    "config_operation": 0,
}
_MEMBER = {"group_id": GROUP, "member_id": "m", "generation_id": 1, "group_instance_id": None}
_PRODUCER = {"transactional_id": TXN_ID, "producer_id": 1, "producer_epoch": 0}
_PARTS = [{"name": TOPIC, "partitions": [0]}]

_CREATE: Step = ((Op.CREATE, _C), (Op.CREATE, _T))
_ALTER_C: Step = ((Op.ALTER, _C),)
_DESCRIBE_C: Step = ((Op.DESCRIBE, _C),)


def _configs() -> Iterator[Sample]:
    kinds = (
        ("topic", 2, TOPIC, _T, _CONFIG),
        ("group", 32, GROUP, _G, _GROUP_CONFIG),
        ("broker", 4, "", _C, _BROKER_CONFIG),
    )
    for name, number, resource, kind, config in kinds:
        for api, operation in (
            (Api.DESCRIBE_CONFIGS, Op.DESCRIBE_CONFIGS),
            (Api.ALTER_CONFIGS, Op.ALTER_CONFIGS),
            (Api.INCREMENTAL_ALTER_CONFIGS, Op.ALTER_CONFIGS),
        ):
            is_change = operation is Op.ALTER_CONFIGS
            about = {"configs": [config]} if is_change else {"configuration_keys": None}
            if api is Api.ALTER_CONFIGS:
                about = {"configs": [{"name": config["name"], "value": config["value"]}]}
            fields = _static(
                resources=[{"resource_type": number, "resource_name": resource, **about}],
                include_synonyms=False,
                include_documentation=False,
                validate_only=True,
            )
            yield Sample(api=api, name=name, steps=(((operation, kind),),), fields=fields)


def _share_groups() -> Iterator[Sample]:
    yield Sample(
        api=Api.SHARE_GROUP_HEARTBEAT,
        steps=(((Op.READ, _G),), ((Op.DESCRIBE, _T),)),
        fields=_static(
            group_id=SHARE_GROUP,
            member_id="m",
            member_epoch=5,
            rack_id=None,
            subscribed_topic_names=[TOPIC],
        ),
    )
    yield Sample(
        api=Api.SHARE_GROUP_DESCRIBE,
        steps=(((Op.DESCRIBE, _G),),),
        fields=_static(group_ids=[SHARE_GROUP], include_authorized_operations=True),
    )
    for api, part in (
        (Api.INITIALIZE_SHARE_GROUP_STATE, {"state_epoch": 0, "start_offset": 0}),
        (Api.READ_SHARE_GROUP_STATE, {"leader_epoch": 0}),
        (
            Api.WRITE_SHARE_GROUP_STATE,
            {
                "state_epoch": 0,
                "leader_epoch": 0,
                "start_offset": 0,
                "delivery_complete_count": 0,
                "state_batches": [],
            },
        ),
        (Api.DELETE_SHARE_GROUP_STATE, {}),
        (Api.READ_SHARE_GROUP_STATE_SUMMARY, {"leader_epoch": 0}),
    ):
        yield Sample(
            api=api,
            steps=(((Op.CLUSTER_ACTION, _C),),),
            fields=_state_request(part),
            needs_broker=True,
        )
    group = {"group_id": SHARE_GROUP, "topics": [{"topic_name": TOPIC, "partitions": [0]}]}
    yield Sample(
        api=Api.DESCRIBE_SHARE_GROUP_OFFSETS,
        # Topics that the client may not describe are left out.
        steps=(((Op.DESCRIBE, _G),),),
        fields=_static(groups=[group]),
    )
    start = {"partition_index": 0, "start_offset": 0}
    yield Sample(
        api=Api.ALTER_SHARE_GROUP_OFFSETS,
        steps=(((Op.READ, _G),), ((Op.READ, _T),)),
        fields=_static(group_id=SHARE_GROUP, topics=[{"topic_name": TOPIC, "partitions": [start]}]),
    )
    yield Sample(
        api=Api.DELETE_SHARE_GROUP_OFFSETS,
        # The right to the topic counts in groups that exist: this one does not.
        steps=(((Op.DELETE, _G),),),
        fields=_static(group_id=SHARE_GROUP, topics=[{"topic_name": TOPIC}]),
    )


def _state_request(
    part: Mapping[str, Any],
) -> Callable[[RunningBroker, int], Mapping[str, Any]]:
    return lambda broker, _version: {
        "group_id": SHARE_GROUP,
        "topics": [
            {
                "topic_id": broker.topic_ref(TOPIC)["topic_id"],
                "partitions": [{"partition": 0, **part}],
            }
        ],
        "sender_id": -1,
        "sender_epoch": -1,
    }


SAMPLES = (
    Sample(
        api=Api.PRODUCE,
        steps=(((Op.WRITE, _T),),),
        fields=lambda broker, version: _produce(broker, transactional=False, version=version),
    ),
    Sample(
        api=Api.PRODUCE,
        name="transactional",
        steps=(((Op.WRITE, _X),), ((Op.WRITE, _T),)),
        fields=lambda broker, version: _produce(broker, transactional=True, version=version),
    ),
    Sample(api=Api.FETCH, steps=(((Op.READ, _T),),), fields=_fetch),
    Sample(
        api=Api.LIST_OFFSETS,
        steps=(((Op.DESCRIBE, _T),),),
        fields=_static(
            replica_id=-1,
            isolation_level=0,
            topics=[
                {
                    "name": TOPIC,
                    "partitions": [
                        {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
                    ],
                }
            ],
            timeout=100,
        ),
    ),
    Sample(
        api=Api.OFFSET_FOR_LEADER_EPOCH,
        steps=(((Op.DESCRIBE, _T),),),
        fields=_static(
            replica_id=-1,
            topics=[
                {
                    "topic": TOPIC,
                    "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}],
                }
            ],
        ),
    ),
    Sample(
        api=Api.METADATA,
        steps=(((Op.DESCRIBE, _T),),),
        fields=lambda broker, version: {
            "topics": [
                {"name": TOPIC, "topic_id": None}
                if version < 12
                else {"name": None, "topic_id": broker.topic_ref(TOPIC)["topic_id"]}
            ],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": True,
            "include_cluster_authorized_operations": True,
        },
    ),
    Sample(
        api=Api.METADATA,
        name="creating",
        steps=(((Op.DESCRIBE, _T),), _CREATE),
        fields=_static(
            topics=[{"name": NEW_TOPIC, "topic_id": None}],
            allow_auto_topic_creation=True,
            include_topic_authorized_operations=False,
            include_cluster_authorized_operations=False,
        ),
        versions=lambda version: version >= 4,
    ),
    Sample(
        api=Api.METADATA,
        name="all",
        steps=(((Op.DESCRIBE, _T),),),
        fields=_static(
            topics=None,
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
            include_cluster_authorized_operations=False,
        ),
        versions=lambda version: version >= 1,
        is_silent=True,
    ),
    Sample(
        api=Api.DESCRIBE_TOPIC_PARTITIONS,
        steps=(((Op.DESCRIBE, _T),),),
        fields=_static(topics=[{"name": TOPIC}], response_partition_limit=10, cursor=None),
    ),
    Sample(
        api=Api.DESCRIBE_TOPIC_PARTITIONS,
        name="all",
        steps=(((Op.DESCRIBE, _T),),),
        fields=_static(topics=[], response_partition_limit=10, cursor=None),
        is_silent=True,
    ),
    Sample(
        api=Api.CREATE_TOPICS,
        steps=(_CREATE,),
        fields=_static(
            topics=[
                {
                    "name": TOPIC,
                    "num_partitions": 1,
                    "replication_factor": 1,
                    "assignments": [],
                    "configs": [],
                }
            ],
            timeout=100,
            validate_only=False,
        ),
    ),
    Sample(
        api=Api.CREATE_TOPICS,
        name="view",
        steps=(_CREATE, ((Op.READ, _T),)),
        fields=_static(
            topics=[
                {
                    "name": "a-view",
                    "num_partitions": -1,
                    "replication_factor": -1,
                    "assignments": [],
                    "configs": [
                        {"name": "respool.view.of", "value": TOPIC},
                        {"name": "respool.view.where", "value": "key = a"},
                    ],
                }
            ],
            timeout=100,
            validate_only=True,
        ),
        versions=lambda version: version < 5,
    ),
    Sample(
        api=Api.DELETE_TOPICS,
        steps=(((Op.DELETE, _C), (Op.DELETE, _T)),),
        fields=_delete_topic,
    ),
    Sample(
        api=Api.CREATE_PARTITIONS,
        steps=(((Op.ALTER, _T),),),
        fields=_static(
            topics=[{"name": TOPIC, "count": 1, "assignments": None}],
            timeout=100,
            validate_only=True,
        ),
    ),
    Sample(
        api=Api.DELETE_RECORDS,
        steps=(((Op.DELETE, _T),),),
        fields=_static(
            topics=[{"name": TOPIC, "partitions": [{"partition_index": 0, "offset": 0}]}],
            timeout=100,
        ),
    ),
    Sample(
        api=Api.DESCRIBE_PRODUCERS,
        steps=(((Op.READ, _T),),),
        fields=_static(topics=[{"name": TOPIC, "partition_indexes": [0]}]),
    ),
    *_configs(),
    Sample(
        api=Api.LIST_CONFIG_RESOURCES,
        steps=(((Op.DESCRIBE_CONFIGS, _C),),),
        fields=_static(resource_types=[]),
    ),
    Sample(
        api=Api.FIND_COORDINATOR,
        name="group",
        steps=(((Op.DESCRIBE, _G),),),
        fields=_static(key=GROUP, key_type=0, coordinator_keys=[GROUP]),
    ),
    Sample(
        api=Api.FIND_COORDINATOR,
        name="transaction",
        steps=(((Op.DESCRIBE, _X),),),
        fields=_static(key=TXN_ID, key_type=1, coordinator_keys=[TXN_ID]),
        versions=lambda version: version >= 1,
    ),
    Sample(
        api=Api.JOIN_GROUP,
        steps=(((Op.READ, _G),),),
        fields=_static(
            **{**_MEMBER, "member_id": "unknown"},
            session_timeout=10_000,
            rebalance_timeout=10_000,
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": b""}],
            reason=None,
        ),
    ),
    Sample(
        api=Api.SYNC_GROUP,
        steps=(((Op.READ, _G),),),
        fields=_static(**_MEMBER, protocol_type="consumer", protocol_name="range", assignments=[]),
    ),
    Sample(api=Api.HEARTBEAT, steps=(((Op.READ, _G),),), fields=_static(**_MEMBER)),
    Sample(
        api=Api.LEAVE_GROUP,
        steps=(((Op.READ, _G),),),
        fields=_static(
            group_id=GROUP,
            member_id="m",
            members=[{"member_id": "m", "group_instance_id": None, "reason": None}],
        ),
    ),
    Sample(
        api=Api.SHARE_FETCH,
        steps=(((Op.READ, _G),), ((Op.READ, _T),)),
        fields=lambda broker, _: {
            "group_id": GROUP,
            "member_id": "m",
            "share_session_epoch": 0,
            "max_wait": 0,
            "min_bytes": 1,
            "max_bytes": 1_000_000,
            "max_records": 500,
            "batch_size": 500,
            "topics": [
                {
                    "topic_id": broker.topic_ref(TOPIC)["topic_id"],
                    "partitions": [{"partition_index": 0, "acknowledgement_batches": []}],
                }
            ],
            "forgotten_topics_data": [],
        },
    ),
    Sample(
        api=Api.SHARE_ACKNOWLEDGE,
        # Without a session, nothing else is asked for.
        steps=(((Op.READ, _G),),),
        fields=_static(group_id=GROUP, member_id="m", share_session_epoch=1, topics=[]),
    ),
    Sample(
        api=Api.CONSUMER_GROUP_HEARTBEAT,
        steps=(((Op.READ, _G),), ((Op.DESCRIBE, _T),)),
        fields=_static(
            group_id=GROUP,
            member_id="m",
            member_epoch=5,
            instance_id=None,
            rack_id=None,
            rebalance_timeout=10_000,
            subscribed_topic_names=[TOPIC],
            subscribed_topic_regex=None,
            server_assignor=None,
            topic_partitions=None,
        ),
    ),
    Sample(
        api=Api.OFFSET_COMMIT,
        steps=(((Op.READ, _G),), ((Op.READ, _T),)),
        fields=lambda broker, _version: _offsets(broker),
    ),
    Sample(
        api=Api.OFFSET_FETCH,
        steps=(((Op.DESCRIBE, _G),), ((Op.DESCRIBE, _T),)),
        fields=lambda broker, _version: {
            "group_id": GROUP,
            "topics": [{"name": TOPIC, "partition_indexes": [0]}],
            "groups": [
                {
                    "group_id": GROUP,
                    "member_id": None,
                    "member_epoch": -1,
                    "topics": [{**broker.topic_ref(TOPIC), "partition_indexes": [0]}],
                }
            ],
            "require_stable": False,
        },
    ),
    Sample(
        api=Api.OFFSET_DELETE,
        steps=(((Op.DELETE, _G),), ((Op.READ, _T),)),
        fields=_static(
            group_id=GROUP, topics=[{"name": TOPIC, "partitions": [{"partition_index": 0}]}]
        ),
    ),
    Sample(
        api=Api.DESCRIBE_GROUPS,
        steps=(((Op.DESCRIBE, _G),),),
        fields=_static(groups=[GROUP], include_authorized_operations=True),
    ),
    Sample(
        api=Api.CONSUMER_GROUP_DESCRIBE,
        steps=(((Op.DESCRIBE, _G),),),
        fields=_static(group_ids=[GROUP], include_authorized_operations=True),
    ),
    Sample(
        api=Api.DELETE_GROUPS, steps=(((Op.DELETE, _G),),), fields=_static(groups_names=[GROUP])
    ),
    Sample(
        api=Api.LIST_GROUPS,
        steps=(((Op.DESCRIBE, _C), (Op.DESCRIBE, _G)),),
        fields=_static(states_filter=[], types_filter=[]),
        is_silent=True,
    ),
    Sample(
        api=Api.INIT_PRODUCER_ID,
        name="transactional",
        steps=(((Op.WRITE, _X),),),
        fields=_static(
            transactional_id=TXN_ID, transaction_timeout=1_000, producer_id=-1, producer_epoch=-1
        ),
    ),
    Sample(
        api=Api.INIT_PRODUCER_ID,
        name="idempotent",
        steps=(((Op.WRITE, _T), (Op.IDEMPOTENT_WRITE, _C)),),
        fields=_static(
            transactional_id=None, transaction_timeout=1_000, producer_id=-1, producer_epoch=-1
        ),
    ),
    Sample(
        api=Api.ADD_PARTITIONS_TO_TXN,
        name="client",
        steps=(((Op.WRITE, _X),), ((Op.WRITE, _T),)),
        fields=_static(
            v3_and_below_transactional_id=TXN_ID,
            v3_and_below_producer_id=1,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=_PARTS,
        ),
        versions=lambda version: version < 4,
    ),
    Sample(
        api=Api.ADD_PARTITIONS_TO_TXN,
        name="broker",
        steps=(((Op.CLUSTER_ACTION, _C),),),
        needs_broker=True,
        fields=_static(transactions=[{**_PRODUCER, "verify_only": True, "topics": _PARTS}]),
        versions=lambda version: version >= 4,
    ),
    Sample(
        api=Api.ADD_OFFSETS_TO_TXN,
        steps=(((Op.WRITE, _X),), ((Op.READ, _G),)),
        fields=_static(**_PRODUCER, group_id=GROUP),
    ),
    Sample(
        api=Api.END_TXN, steps=(((Op.WRITE, _X),),), fields=_static(**_PRODUCER, committed=True)
    ),
    Sample(
        api=Api.TXN_OFFSET_COMMIT,
        steps=(((Op.WRITE, _X),), ((Op.READ, _G),), ((Op.READ, _T),)),
        fields=lambda broker, _version: {
            name: value
            for name, value in _offsets(broker, **_PRODUCER).items()
            if name not in ("generation_id_or_member_epoch", "retention_time")
        },
    ),
    Sample(
        api=Api.WRITE_TXN_MARKERS,
        steps=(((Op.ALTER, _C),),),
        fields=_static(
            markers=[
                {
                    "producer_id": -5,
                    "producer_epoch": 0,
                    "transaction_result": False,
                    "topics": [{"name": TOPIC, "partition_indexes": [0]}],
                    "coordinator_epoch": 0,
                    "transaction_version": 0,
                }
            ]
        ),
    ),
    Sample(
        api=Api.DESCRIBE_TRANSACTIONS,
        steps=(((Op.DESCRIBE, _X),),),
        fields=_static(transactional_ids=[TXN_ID]),
    ),
    Sample(
        api=Api.LIST_TRANSACTIONS,
        steps=(((Op.DESCRIBE, _X),),),
        fields=_static(
            state_filters=[],
            producer_id_filters=[],
            duration_filter=-1,
            transactional_id_pattern=None,
        ),
        is_silent=True,
    ),
    Sample(
        api=Api.DESCRIBE_CLUSTER,
        steps=(),
        fields=_static(
            include_cluster_authorized_operations=True,
            endpoint_type=1,
            include_fenced_brokers=False,
        ),
    ),
    Sample(
        api=Api.API_VERSIONS,
        steps=(),
        fields=_static(
            client_software_name="a", client_software_version="1", cluster_id=None, node_id=-1
        ),
    ),
    Sample(
        api=Api.DESCRIBE_LOG_DIRS,
        steps=(_DESCRIBE_C,),
        fields=_static(topics=None),
        # Before, the reply had no code: it is empty.
        versions=lambda version: version >= 3,
    ),
    Sample(
        api=Api.ALTER_REPLICA_LOG_DIRS,
        steps=(_ALTER_C,),
        fields=_static(dirs=[{"path": "/", "topics": _PARTS}]),
    ),
    Sample(
        api=Api.ELECT_LEADERS,
        steps=(_ALTER_C,),
        fields=_static(
            election_type=0, topic_partitions=[{"topic": TOPIC, "partitions": [0]}], timeout=100
        ),
    ),
    Sample(
        api=Api.ALTER_PARTITION_REASSIGNMENTS,
        steps=(_ALTER_C,),
        fields=_static(timeout=100, allow_replication_factor_change=True, topics=[]),
    ),
    Sample(
        api=Api.LIST_PARTITION_REASSIGNMENTS,
        steps=(_DESCRIBE_C,),
        fields=_static(timeout=100, topics=None),
    ),
    Sample(
        api=Api.DESCRIBE_QUORUM,
        steps=(_DESCRIBE_C,),
        fields=_static(
            topics=[{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
        ),
    ),
    Sample(
        api=Api.UPDATE_FEATURES,
        steps=(_ALTER_C,),
        fields=_static(timeout=100, feature_updates=[], validate_only=True),
    ),
    Sample(api=Api.UNREGISTER_BROKER, steps=(_ALTER_C,), fields=_static(broker_id=99)),
    Sample(api=Api.DESCRIBE_ACLS, steps=(_DESCRIBE_C,), fields=_static(**_FILTER)),
    Sample(api=Api.CREATE_ACLS, steps=(_ALTER_C,), fields=_static(creations=[_CREATION])),
    Sample(api=Api.DELETE_ACLS, steps=(_ALTER_C,), fields=_static(filters=[_FILTER])),
    Sample(
        api=Api.DESCRIBE_CLIENT_QUOTAS,
        steps=(((Op.DESCRIBE_CONFIGS, _C),),),
        fields=_static(components=[], strict=False),
    ),
    Sample(
        api=Api.ALTER_CLIENT_QUOTAS,
        steps=(((Op.ALTER_CONFIGS, _C),),),
        fields=_static(
            entries=[
                {
                    "entity": [{"entity_type": "user", "entity_name": "bob"}],
                    "ops": [{"key": "producer_byte_rate", "value": 1e6, "remove": False}],
                }
            ],
            validate_only=True,
        ),
    ),
    Sample(
        api=Api.DESCRIBE_USER_SCRAM_CREDENTIALS,
        steps=(_DESCRIBE_C,),
        fields=_static(users=None),
    ),
    Sample(
        api=Api.ALTER_USER_SCRAM_CREDENTIALS,
        steps=(_ALTER_C,),
        fields=_static(deletions=[{"name": "nobody", "mechanism": 1}], upsertions=[]),
    ),
    *_share_groups(),
)
