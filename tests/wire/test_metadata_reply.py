"""The Metadata reply written by hand is, byte for byte, what kio would have written."""

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from respool.wire.api_table import API_TABLE, Api
from respool.wire.codec import Request, encode_reply
from respool.wire.metadata_reply import (
    MetadataBroker,
    MetadataPartition,
    MetadataTopic,
    encode_metadata_reply,
)

SPEC = API_TABLE[Api.METADATA]
VERSIONS = range(SPEC.version_min, SPEC.version_max + 1)

int32 = st.integers(-(2**31), 2**31 - 1)
names = st.text(max_size=200)
broker_ids = st.lists(int32, max_size=5)

partitions = st.builds(
    MetadataPartition,
    error_code=st.sampled_from([0, 3, 5, 6, 9, 72]),
    partition=int32,
    leader=int32,
    leader_epoch=int32,
    replicas=broker_ids,
    isr=broker_ids,
    offline_replicas=broker_ids,
)
topics = st.builds(
    MetadataTopic,
    error_code=st.sampled_from([0, 3, 17, 29, 42, 100]),
    name=names,
    topic_id=st.none() | st.uuids(),
    is_internal=st.booleans(),
    partitions=st.lists(partitions, max_size=4),
    authorized_operations=int32,
)
brokers = st.builds(MetadataBroker, node_id=int32, host=names, port=int32, rack=st.none() | names)


def by_kio(version: int, **given_fields: Any) -> bytes:
    request = Request(
        api=SPEC, version=version, correlation_id=9, client_id=None, body=None, size=0
    )
    fields = {
        "throttle_time": given_fields["throttle_ms"],
        "brokers": [one._asdict() for one in given_fields["brokers"]],
        "cluster_id": given_fields["cluster_id"],
        "controller_id": given_fields["controller_id"],
        "topics": [
            {
                "error_code": topic.error_code,
                "name": topic.name,
                "topic_id": topic.topic_id,
                "is_internal": topic.is_internal,
                "partitions": [
                    {
                        "error_code": one.error_code,
                        "partition_index": one.partition,
                        "leader_id": one.leader,
                        "leader_epoch": one.leader_epoch,
                        "replica_nodes": one.replicas,
                        "isr_nodes": one.isr,
                        "offline_replicas": one.offline_replicas,
                    }
                    for one in topic.partitions
                ],
                "topic_authorized_operations": topic.authorized_operations,
            }
            for topic in given_fields["topics"]
        ],
        "cluster_authorized_operations": given_fields["cluster_authorized_operations"],
        "error_code": 0,
    }
    return encode_reply(request, fields)


# The first use of a version loads kio's classes for it, which takes a while.
@settings(max_examples=30, deadline=None)
@pytest.mark.parametrize("version", VERSIONS)
@given(
    fields=st.fixed_dictionaries(
        {
            "brokers": st.lists(brokers, max_size=3),
            "cluster_id": st.none() | names,
            "controller_id": int32,
            "topics": st.lists(topics, max_size=3),
            "cluster_authorized_operations": int32,
            "throttle_ms": st.integers(0, 2**31 - 1),
        }
    )
)
def test_bytes_are_those_of_kio(version: int, fields: dict[str, Any]) -> None:
    assert encode_metadata_reply(9, version, **fields) == by_kio(version, **fields)


@pytest.mark.parametrize("version", [version for version in VERSIONS if version >= 12])
def test_a_topic_asked_for_by_id_may_have_no_name(version: int) -> None:
    topic = MetadataTopic(
        error_code=100,
        name=None,
        topic_id=UUID(int=5),
        is_internal=False,
        partitions=(),
        authorized_operations=0,
    )
    fields: dict[str, Any] = {
        "brokers": [],
        "cluster_id": "c",
        "controller_id": 1,
        "topics": [topic],
        "cluster_authorized_operations": 0,
        "throttle_ms": 0,
    }
    assert encode_metadata_reply(9, version, **fields) == by_kio(version, **fields)


@pytest.mark.parametrize("version", VERSIONS)
def test_counts_of_more_than_one_byte_are_written_right(version: int) -> None:
    wide = MetadataTopic(
        error_code=0,
        name="wide",
        topic_id=UUID(int=5),
        is_internal=False,
        partitions=[MetadataPartition(0, n, 1, 0, (1,), (1,), ()) for n in range(300)],
        authorized_operations=0,
    )
    fields: dict[str, Any] = {
        "brokers": [],
        "cluster_id": "c",
        "controller_id": 1,
        "topics": [wide] * 200,
        "cluster_authorized_operations": 0,
        "throttle_ms": 0,
    }
    assert encode_metadata_reply(9, version, **fields) == by_kio(version, **fields)
