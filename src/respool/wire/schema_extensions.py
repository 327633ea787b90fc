"""Extensions and corrections of kio's message classes; use these classes instead.

DescribeTransactions, the reply. A transactional id without a transaction has the start time -1. Kafka declares a plain
int64; kio reads it as a time and rejects -1. Here it may be None.

Fetch, the request, in the version used between our brokers. In Kafka, the fetch offset implies that the follower has
everything before it. Our followers continue to fetch before earlier data is synced: so each partition has one more
tagged field, `durable_end`. Brokers that do not know it skip it, like any other (KIP-482). In that version, and in the
one that our Arrow client reads with, the request has one more, `reader_host`: see local_read. The Arrow client's has
another one, `condition`: see fetch_condition.

CreatePartitions, the request, in one version: a tagged field, `layout_change`; and in replies of
DescribeTopicPartitions, a topic's `layout`, and a partition's `sealed_end` and `shown_end`: see layout_change.

ListOffsets, the request, in one version: each partition has one more tagged field, `time_at`. The reply to a broker
that requests a log's end then includes the timestamp of the record at that offset: see `broker/metrics/remote_ends.py`.

The requests about share partitions' state (keys 83 to 87) have two more tagged fields, `sender_id` and `sender_epoch`:
only brokers may send them. Batches of state have one more, `due_at`: the time before which records are not delivered.
"""

from collections.abc import Mapping
from dataclasses import MISSING, field, fields, make_dataclass
from functools import cache
from typing import Any

from kio.static.primitive import TZAware, i64

from respool.wire.api_table import Api
from respool.wire.fetch_condition import CONDITION_FETCH_VERSION, CONDITION_TAG
from respool.wire.layout_change import (
    LAYOUT_CHANGE_TAG,
    LAYOUT_CHANGE_VERSION,
    LAYOUT_TAG,
    SEALED_END_TAG,
    SHOWN_END_TAG,
)
from respool.wire.local_read import LOCAL_READ_FETCH_VERSION, LOCAL_READ_TAG
from respool.wire.schema import EntityClass, load_request_class, response_class, schema_of

# Clients of this version read partitions with it, and it has a tagged field already.
REPLICA_FETCH_VERSION = 17
# Far from Kafka's tag numbers.
_DURABLE_END_TAG = 5_000
TIME_AT_VERSION = 9
_TIME_AT_TAG = 5_001

# The default must be "" and not None: the writer omits default values.
_READER_HOST = (
    "reader_host",
    str,
    field(metadata={"kafka_type": "string", "tag": LOCAL_READ_TAG}, default=""),
)
_CONDITION = (
    "condition",
    str,
    field(metadata={"kafka_type": "string", "tag": CONDITION_TAG}, default=""),
)

_SENDER_ID_TAG = 5_002
_SENDER_EPOCH_TAG = 5_003
_DUE_AT_TAG = 5_004
_SHARE_STATE_APIS = frozenset(
    {
        Api.INITIALIZE_SHARE_GROUP_STATE,
        Api.READ_SHARE_GROUP_STATE,
        Api.WRITE_SHARE_GROUP_STATE,
        Api.DELETE_SHARE_GROUP_STATE,
        Api.READ_SHARE_GROUP_STATE_SUMMARY,
    }
)
_LAYOUT_CHANGE = (
    "layout_change",
    str,
    field(metadata={"kafka_type": "string", "tag": LAYOUT_CHANGE_TAG}, default=""),
)
_LAYOUT = (
    "layout",
    str,
    field(metadata={"kafka_type": "string", "tag": LAYOUT_TAG}, default=""),
)

_MARKS = ("__type__", "__version__", "__flexible__", "__api_key__", "__header_schema__")


@cache
def request_class(key: int, version: int) -> EntityClass:
    """The class to read and write a request with."""
    loaded = load_request_class(key, version)
    if key == Api.LIST_OFFSETS and version == TIME_AT_VERSION:
        return _with_partition_field(loaded, "time_at", _TIME_AT_TAG)
    if key in _SHARE_STATE_APIS:
        if key == Api.WRITE_SHARE_GROUP_STATE:
            loaded = _with_due_at(loaded, "topics")
        return _with_types(
            loaded,
            {},
            _tagged_int64("sender_id", _SENDER_ID_TAG),
            _tagged_int64("sender_epoch", _SENDER_EPOCH_TAG),
        )
    if key == Api.CREATE_PARTITIONS and version == LAYOUT_CHANGE_VERSION:
        return _with_types(loaded, {}, _LAYOUT_CHANGE)
    if key != Api.FETCH or version not in {LOCAL_READ_FETCH_VERSION, REPLICA_FETCH_VERSION}:
        return loaded
    loaded = _with_types(loaded, {}, _READER_HOST)
    if version == CONDITION_FETCH_VERSION:
        loaded = _with_types(loaded, {}, _CONDITION)
    if version != REPLICA_FETCH_VERSION:
        return loaded
    return _with_partition_field(loaded, "durable_end", _DURABLE_END_TAG)


def _with_partition_field(loaded: EntityClass, name: str, tag: int) -> EntityClass:
    """The class with one more tagged int64 for each partition of each topic; -1 if omitted."""
    topic = _struct(loaded, "topics")
    partition: Any = _with_types(_struct(topic, "partitions"), {}, _tagged_int64(name, tag))
    array: Any = tuple
    topic = _with_types(topic, {"partitions": array[partition, ...]})
    return _with_types(loaded, {"topics": array[topic, ...]})


def _tagged_int64(name: str, tag: int) -> tuple[str, Any, Any]:
    """A tagged int64; -1 if omitted."""
    return (name, i64, field(metadata={"kafka_type": "int64", "tag": tag}, default=i64(-1)))


def _with_due_at(loaded: EntityClass, topics: str) -> EntityClass:
    """The class with a due time for each batch of state."""
    array: Any = tuple
    topic = _struct(loaded, topics)
    partition = _struct(topic, "partitions")
    batch: Any = _with_types(
        _struct(partition, "state_batches"), {}, _tagged_int64("due_at", _DUE_AT_TAG)
    )
    partition = _with_types(partition, {"state_batches": array[batch, ...]})
    topic = _with_types(topic, {"partitions": array[partition, ...]})
    return _with_types(loaded, {topics: array[topic, ...]})


@cache
def written_reply_class(key: int, version: int) -> EntityClass:
    """The class to write a reply with."""
    loaded = response_class(key, version)
    if key == Api.DESCRIBE_TOPIC_PARTITIONS:
        return _with_layouts(loaded)
    if key != Api.READ_SHARE_GROUP_STATE:
        return loaded
    return _with_due_at(loaded, "results")


def _with_layouts(loaded: EntityClass) -> EntityClass:
    array: Any = tuple
    topic = _struct(loaded, "topics")
    partition: Any = _with_types(
        _struct(topic, "partitions"),
        {},
        _tagged_int64("sealed_end", SEALED_END_TAG),
        _tagged_int64("shown_end", SHOWN_END_TAG),
    )
    topic = _with_types(topic, {"partitions": array[partition, ...]}, _LAYOUT)
    return _with_types(loaded, {"topics": array[topic, ...]})


@cache
def reply_class(key: int, version: int) -> EntityClass:
    """The class to read a reply with."""
    loaded = written_reply_class(key, version)
    if key != Api.DESCRIBE_TRANSACTIONS:
        return loaded
    states = _struct(loaded, "transaction_states")
    state: Any = _with_types(states, {"transaction_start_time": TZAware | None})
    # Two steps, because mypy would interpret the subscript as a type.
    array: Any = tuple
    return _with_types(loaded, {"transaction_states": array[state, ...]})


def _struct(entity_class: EntityClass, name: str) -> EntityClass:
    """The class of a field's items."""
    (found,) = (item.struct for item in schema_of(entity_class) if item.name == name)
    assert found is not None
    return found


def _with_types(
    entity_class: EntityClass, types: Mapping[str, Any], *added: tuple[str, Any, Any]
) -> EntityClass:
    """The class with other types for these fields, and with these fields added."""
    return make_dataclass(
        entity_class.__name__,
        [
            (
                item.name,
                types.get(item.name, item.type),
                field(metadata=item.metadata)
                if item.default is MISSING
                else field(metadata=item.metadata, default=item.default),
            )
            for item in fields(entity_class)
        ]
        + list(added),
        namespace={mark: getattr(entity_class, mark) for mark in _MARKS},
        frozen=True,
        slots=True,
        kw_only=True,
    )
