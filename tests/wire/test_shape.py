import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from respool.wire.api_table import Api
from respool.wire.schema import response_class
from respool.wire.schema_extensions import request_class
from respool.wire.shape import milliseconds, shape
from wire.entities import SERVED, encode, entities, examples

METADATA: dict[str, Any] = {
    # Version 13 only.
    "error_code": 0,
    "throttle_time": 250,
    "brokers": [{"node_id": 1, "host": "localhost", "port": 9092, "rack": "a"}],
    "cluster_id": "respool",
    "controller_id": 1,
    # Versions 8 to 10 only.
    "cluster_authorized_operations": 5,
    "topics": [
        {
            "error_code": 0,
            "name": "rides",
            "topic_id": UUID(int=7),
            "is_internal": False,
            "topic_authorized_operations": 3,
            "partitions": [
                {
                    "error_code": 5,
                    "partition_index": 0,
                    "leader_id": -1,
                    "leader_epoch": 4,
                    "replica_nodes": [1, 2],
                    "isr_nodes": [1],
                    "offline_replicas": (2,),
                }
            ],
        }
    ],
}


@pytest.mark.parametrize("version", range(14))
def test_one_answer_fits_every_version(version: int) -> None:
    entity = shape(response_class(Api.METADATA, version), METADATA)
    (topic,) = entity.topics
    (partition,) = topic.partitions
    assert type(entity).__version__ == version
    assert topic.name == "rides"
    assert partition.error_code is ErrorCode.leader_not_available
    assert partition.replica_nodes == (1, 2)
    # A field is there from the version on that brought it, and gone after the last that had it.
    assert getattr(entity, "throttle_time", None) == (
        timedelta(milliseconds=250) if version >= 3 else None
    )
    assert getattr(partition, "leader_epoch", None) == (4 if version >= 7 else None)
    assert getattr(topic, "topic_id", None) == (UUID(int=7) if version >= 10 else None)
    assert hasattr(entity, "cluster_authorized_operations") == (8 <= version <= 10)
    assert encode(entity)


def test_fields_not_given_take_the_schemas_default() -> None:
    fields = {"error_code": 0, "api_keys": [], "throttle_time": 0}
    entity = shape(response_class(Api.API_VERSIONS, 4), fields)
    assert entity.finalized_features_epoch == -1
    assert entity.supported_features == ()


def test_a_field_without_default_must_be_given() -> None:
    fields = {"responses": [{"name": "rides", "partition_responses": [{"index": 0}]}]}
    with pytest.raises(
        TypeError,
        match=r"ProduceResponse v9, responses: TopicProduceResponse v9, partition_responses: "
        r"PartitionProduceResponse v9, error_code: it is missing",
    ):
        shape(response_class(Api.PRODUCE, 9), fields)


@pytest.mark.parametrize("version", [0, 9, 13])
def test_a_name_no_version_knows_is_a_mistake(version: int) -> None:
    with pytest.raises(TypeError, match=f"MetadataResponse v{version} has no controler_id, nor"):
        shape(response_class(Api.METADATA, version), {**METADATA, "controler_id": 1})
    broker = {"node_id": 1, "host": "localhost", "port": 9092, "zone": "a"}
    with pytest.raises(TypeError, match=f"MetadataResponseBroker v{version} has no zone, nor"):
        shape(response_class(Api.METADATA, version), {**METADATA, "brokers": [broker]})


def test_a_request_leaves_out_what_its_version_does_not_have() -> None:
    fields = {"states_filter": ["Empty"], "types_filter": ["classic"]}
    assert shape(request_class(Api.LIST_GROUPS, 4), fields).states_filter == ("Empty",)
    assert shape(request_class(Api.LIST_GROUPS, 5), fields).types_filter == ("classic",)
    with pytest.raises(TypeError, match="no types_filer"):
        shape(request_class(Api.LIST_GROUPS, 4), {"types_filer": []} | fields)


@pytest.mark.parametrize("field", ["topics", "brokers"])
def test_null_is_a_mistake_where_the_schema_does_not_allow_it(field: str) -> None:
    with pytest.raises(TypeError, match=f"MetadataResponse v9, {field}: "):
        shape(response_class(Api.METADATA, 9), {**METADATA, field: None})


def test_null_is_kept_where_the_schema_allows_it() -> None:
    fields: dict[str, Any] = {"throttle_time": 0, "topics": [], "next_cursor": None}
    reply_class = response_class(Api.DESCRIBE_TOPIC_PARTITIONS, 0)
    assert shape(reply_class, fields).next_cursor is None
    fields["next_cursor"] = {"topic_name": "rides", "partition_index": 3}
    assert shape(reply_class, fields).next_cursor.partition_index == 3


def test_durations_and_times_are_given_in_milliseconds_or_as_pythons_own() -> None:
    partition = {"index": 0, "error_code": 0, "base_offset": 0, "record_errors": []}

    def produced(throttle_time: Any, log_append_time: Any) -> Any:
        topic = {
            "name": "rides",
            "partition_responses": [{**partition, "log_append_time": log_append_time}],
        }
        return shape(
            response_class(Api.PRODUCE, 9), {"responses": [topic], "throttle_time": throttle_time}
        )

    plain = produced(1500, 1_700_000_000_123)
    assert plain == produced(
        timedelta(seconds=1.5),
        datetime.fromtimestamp(1_700_000_000, tz=UTC).replace(microsecond=123_000),
    )
    assert (1_700_000_000_123).to_bytes(8, "big") in encode(plain)
    assert (1500).to_bytes(4, "big") in encode(plain)
    no_time = produced(0, -1)
    assert no_time == produced(0, None)
    assert no_time.responses[0].partition_responses[0].log_append_time is None


def test_a_code_that_is_not_kafkas_is_a_mistake() -> None:
    with pytest.raises(
        TypeError, match="ApiVersionsResponse v0, error_code: 9999 is not an error code"
    ):
        shape(response_class(Api.API_VERSIONS, 0), {"error_code": 9999, "api_keys": []})


def test_the_null_uuid_is_none_or_zero() -> None:
    topic = METADATA["topics"][0]

    def encoded(topic_id: UUID | None) -> bytes:
        fields = {**METADATA, "topics": [{**topic, "topic_id": topic_id}]}
        return encode(shape(response_class(Api.METADATA, 12), fields))

    assert encoded(None) == encoded(UUID(int=0)) != encoded(UUID(int=1))


def test_a_duration_of_a_request_is_read_back_as_it_was_on_the_wire() -> None:
    assert [milliseconds(timedelta(milliseconds=value)) for value in (-1, 0, 1, 2**31 - 1)] == [
        -1,
        0,
        1,
        2**31 - 1,
    ]


@pytest.mark.long
@settings(max_examples=examples(300, long=5_000), deadline=None)
@given(st.data())
def test_any_reply_is_shaped_back_from_its_own_fields(data: st.DataObject) -> None:
    entity = data.draw(entities(response_class(*data.draw(st.sampled_from(SERVED)))))
    assert shape(type(entity), dataclasses.asdict(entity)) == entity
