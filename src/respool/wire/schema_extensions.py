"""Where kio's classes are not what goes over the wire: these are used instead.

DescribeTransactions, the reply. A transactional id that has begun no transaction has the start time -1. To Kafka's
definition that is an int64 like any other; kio takes the field for a time, and finds no such time. Here it may be None.

Fetch, the request, in the version that our brokers follow each other with. Kafka's followers say with the offset they
fetch from that they have all before it. Ours have it when it is on the disk, and go on fetching meanwhile: so each
partition has one more tagged field, `durable_end`. Who does not know it passes over it, as over any other (KIP-482).
There, and in the version that our Arrow client reads with, the request has another, `reader_host`: see `local_read.py`.

ListOffsets, the request, in one version: each partition has one more tagged field, `time_at`. A broker that asks for a
log's end is told with it when the record at that offset was made: see `broker/metrics/remote_ends.py`.
"""

from collections.abc import Mapping
from dataclasses import MISSING, field, fields, make_dataclass
from functools import cache
from typing import Any

from kio.static.primitive import TZAware, i64

from respool.wire.api_table import Api
from respool.wire.local_read import LOCAL_READ_FETCH_VERSION, LOCAL_READ_TAG
from respool.wire.schema import EntityClass, load_request_class, response_class, schema_of

# Only clients of the newest version read this one's partitions with it, and they have a tagged field already.
REPLICA_FETCH_VERSION = 17
# Far from those that Kafka has given out.
_DURABLE_END_TAG = 5_000
TIME_AT_VERSION = 9
_TIME_AT_TAG = 5_001

# None would be another thing than "" to the writer, which leaves out what is as by default.
_READER_HOST = (
    "reader_host",
    str,
    field(metadata={"kafka_type": "string", "tag": LOCAL_READ_TAG}, default=""),
)

_MARKS = ("__type__", "__version__", "__flexible__", "__api_key__", "__header_schema__")


@cache
def request_class(key: int, version: int) -> EntityClass:
    """What to read and write a request with."""
    loaded = load_request_class(key, version)
    if key == Api.LIST_OFFSETS and version == TIME_AT_VERSION:
        return _with_partition_field(loaded, "time_at", _TIME_AT_TAG)
    if key != Api.FETCH or version not in {LOCAL_READ_FETCH_VERSION, REPLICA_FETCH_VERSION}:
        return loaded
    loaded = _with_types(loaded, {}, _READER_HOST)
    if version != REPLICA_FETCH_VERSION:
        return loaded
    return _with_partition_field(loaded, "durable_end", _DURABLE_END_TAG)


def _with_partition_field(loaded: EntityClass, name: str, tag: int) -> EntityClass:
    """The same class, with one more tagged int64 for each partition of each topic; -1 where it is left out."""
    topic = _struct(loaded, "topics")
    added = (name, i64, field(metadata={"kafka_type": "int64", "tag": tag}, default=i64(-1)))
    partition: Any = _with_types(_struct(topic, "partitions"), {}, added)
    array: Any = tuple
    topic = _with_types(topic, {"partitions": array[partition, ...]})
    return _with_types(loaded, {"topics": array[topic, ...]})


@cache
def reply_class(key: int, version: int) -> EntityClass:
    """What to read a reply with."""
    loaded = response_class(key, version)
    if key != Api.DESCRIBE_TRANSACTIONS:
        return loaded
    states = _struct(loaded, "transaction_states")
    state: Any = _with_types(states, {"transaction_start_time": TZAware | None})
    # Two steps, since mypy takes what is in the brackets for a type that it must know.
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
    """The same class, but for the types of these fields, and with those at its end."""
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
