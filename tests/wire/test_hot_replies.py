from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from respool.wire.api_table import API_TABLE, Api
from respool.wire.codec import Request, encode_reply
from respool.wire.hot_replies import (
    FetchedPartition,
    FetchReplyTopic,
    ListedOffset,
    NodeEndpoint,
    ProducedPartition,
    encode_fetch_reply,
    encode_list_offsets_reply,
    encode_produce_reply,
)
from wire.entities import examples

PRODUCE_VERSIONS = range(3, 14)
FETCH_VERSIONS = range(4, 19)
LIST_OFFSETS_VERSIONS = range(1, 12)

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
error_codes = st.sampled_from([int(code) for code in ErrorCode])
texts = st.text(max_size=12) | st.just("t" * 300)
id_and_number = st.none() | st.just((-1, -1)) | st.tuples(int32, int32)

endpoints = st.lists(st.builds(NodeEndpoint, int32, texts, int32, st.none() | texts), max_size=2)
produced = st.builds(
    ProducedPartition,
    partition=int32,
    error_code=error_codes,
    base_offset=int64,
    # kio holds it as a datetime, so it must lie between 1970 and 9999.
    log_append_time_ms=st.integers(-1, 2**47),
    log_start_offset=int64,
    error_message=st.none() | texts,
    record_errors=st.lists(st.tuples(int32, st.none() | texts), max_size=2),
    current_leader=id_and_number,
)
fetched = st.builds(
    FetchedPartition,
    partition=int32,
    error_code=error_codes,
    high_watermark=int64,
    last_stable_offset=int64,
    log_start_offset=int64,
    records=st.sampled_from([b"", b"r", b"r" * 127, b"r" * 20_000]) | st.binary(max_size=20),
    aborted=st.none() | st.lists(st.tuples(int64, int64), max_size=3),
    preferred_read_replica=int32,
    diverging_epoch=st.none() | st.just((-1, -1)) | st.tuples(int32, int64),
    current_leader=id_and_number,
    # Kafka has no such field: test_lent_records.
    file_range=st.none(),
)
fetched_topics = st.lists(
    st.builds(FetchReplyTopic, texts, st.uuids(), st.lists(fetched, max_size=3)), max_size=3
)


listed = st.builds(
    ListedOffset,
    partition=int32,
    error_code=error_codes,
    timestamp=int64,
    offset=int64,
    leader_epoch=int32,
)


def by_kio(key: Api, version: int, fields: dict[str, Any]) -> bytes:
    request = Request(
        api=API_TABLE[key],
        version=version,
        correlation_id=11,
        client_id=None,
        body=None,
        size=0,
    )
    return encode_reply(request, fields)


def leader_field(leader: tuple[int, int] | None) -> dict[str, Any]:
    if leader is None:
        return {}
    return {"current_leader": {"leader_id": leader[0], "leader_epoch": leader[1]}}


def produced_fields(item: ProducedPartition) -> dict[str, Any]:
    return {
        "index": item.partition,
        "error_code": item.error_code,
        "base_offset": item.base_offset,
        "log_append_time": item.log_append_time_ms,
        "log_start_offset": item.log_start_offset,
        "error_message": item.error_message,
        "record_errors": [
            {"batch_index": index, "batch_index_error_message": message}
            for index, message in item.record_errors
        ],
        **leader_field(item.current_leader),
    }


def fetched_fields(item: FetchedPartition) -> dict[str, Any]:
    fields = {
        "partition_index": item.partition,
        "error_code": item.error_code,
        "high_watermark": item.high_watermark,
        "last_stable_offset": item.last_stable_offset,
        "log_start_offset": item.log_start_offset,
        "records": item.records,
        "aborted_transactions": None
        if item.aborted is None
        else [{"producer_id": a, "first_offset": b} for a, b in item.aborted],
        "preferred_read_replica": item.preferred_read_replica,
        **leader_field(item.current_leader),
    }
    if item.diverging_epoch is not None:
        epoch, end_offset = item.diverging_epoch
        fields["diverging_epoch"] = {"epoch": epoch, "end_offset": end_offset}
    return fields


def endpoint_fields(nodes: list[NodeEndpoint]) -> list[dict[str, Any]]:
    return [node._asdict() for node in nodes]


@pytest.mark.long
@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@settings(max_examples=examples(60, long=1_000), deadline=None)
@given(
    topics=st.lists(st.tuples(texts, st.uuids(), st.lists(produced, max_size=3)), max_size=3),
    throttle_ms=int32,
    nodes=endpoints,
)
def test_a_produce_reply_is_byte_for_byte_what_kio_writes(
    *,
    version: int,
    topics: list[tuple[str, UUID, list[ProducedPartition]]],
    throttle_ms: int,
    nodes: list[NodeEndpoint],
) -> None:
    expected = by_kio(
        Api.PRODUCE,
        version,
        {
            "responses": [
                {
                    "name": name,
                    "topic_id": topic_id,
                    "partition_responses": list(map(produced_fields, partitions)),
                }
                for name, topic_id, partitions in topics
            ],
            "throttle_time": throttle_ms,
            "node_endpoints": endpoint_fields(nodes),
        },
    )
    refs = [
        (topic_id if version >= 13 else name, partitions) for name, topic_id, partitions in topics
    ]
    assert encode_produce_reply(11, version, refs, throttle_ms, nodes) == expected


@pytest.mark.long
@pytest.mark.parametrize("version", FETCH_VERSIONS)
@settings(max_examples=examples(60, long=1_000), deadline=None)
@given(
    topics=fetched_topics,
    throttle_ms=int32,
    error_code=error_codes,
    session_id=int32,
    nodes=endpoints,
)
def test_a_fetch_reply_is_byte_for_byte_what_kio_writes(
    *,
    version: int,
    topics: list[FetchReplyTopic],
    throttle_ms: int,
    error_code: int,
    session_id: int,
    nodes: list[NodeEndpoint],
) -> None:
    expected = by_kio(
        Api.FETCH,
        version,
        {
            "throttle_time": throttle_ms,
            "error_code": error_code,
            "session_id": session_id,
            "responses": [
                {
                    "topic": topic.name,
                    "topic_id": topic.topic_id,
                    "partitions": list(map(fetched_fields, topic.partitions)),
                }
                for topic in topics
            ],
            "node_endpoints": endpoint_fields(nodes),
        },
    )
    buffers = encode_fetch_reply(
        11,
        version,
        topics,
        throttle_ms=throttle_ms,
        error_code=error_code,
        session_id=session_id,
        node_endpoints=nodes,
    )
    assert b"".join(buffers) == expected


@pytest.mark.long
@pytest.mark.parametrize("version", FETCH_VERSIONS)
@settings(max_examples=examples(10, long=200), deadline=None)
@given(topics=fetched_topics)
def test_record_bytes_are_passed_on_and_never_copied(
    version: int, topics: list[FetchReplyTopic]
) -> None:
    records = [item.records for topic in topics for item in topic.partitions if item.records]
    buffers = encode_fetch_reply(11, version, topics)
    assert [id(buffer) for buffer in buffers[1::2]] == [id(record) for record in records]
    assert len(buffers) == 2 * len(records) + 1


@pytest.mark.parametrize("version", LIST_OFFSETS_VERSIONS)
@settings(max_examples=examples(20, long=1_000), deadline=None)
@given(
    topics=st.lists(st.tuples(texts, st.lists(listed, max_size=3)), max_size=3), throttle_ms=int32
)
def test_a_list_offsets_reply_is_byte_for_byte_what_kio_writes(
    version: int, topics: list[tuple[str, list[ListedOffset]]], throttle_ms: int
) -> None:
    fields = [
        {
            "name": name,
            "partitions": [
                {
                    "partition_index": one.partition,
                    "error_code": one.error_code,
                    "timestamp": one.timestamp,
                    "offset": one.offset,
                    "leader_epoch": one.leader_epoch,
                }
                for one in partitions
            ],
        }
        for name, partitions in topics
    ]
    expected = by_kio(Api.LIST_OFFSETS, version, {"throttle_time": throttle_ms, "topics": fields})
    frame = encode_list_offsets_reply(11, version, topics, throttle_ms)
    assert frame == expected
    assert getattr(frame, "error_codes", ()) == getattr(expected, "error_codes", ())


@dataclass(frozen=True)
class InPieces:
    buffers: Sequence[bytes | memoryview]

    def __len__(self) -> int:
        return sum(map(len, self.buffers))


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_records_in_pieces_make_the_same_frame_as_in_one(version: int) -> None:
    def reply(records: bytes | InPieces) -> list[bytes | memoryview]:
        one = FetchedPartition(3, 0, 9, 9, 0, records, [(1, 2)])
        other = FetchedPartition(4, 0, 9, 9, 0, b"others")
        return encode_fetch_reply(11, version, [FetchReplyTopic("t", UUID(int=7), [one, other])])

    rest = memoryview(b"the rest of it")
    buffers = reply(InPieces([b"a stamp, ", rest]))
    assert b"".join(buffers) == b"".join(reply(b"a stamp, the rest of it"))
    assert buffers[2] is rest


def test_the_served_versions_are_those_compared_here() -> None:
    for key, versions in (
        (Api.PRODUCE, PRODUCE_VERSIONS),
        (Api.FETCH, FETCH_VERSIONS),
        (Api.LIST_OFFSETS, LIST_OFFSETS_VERSIONS),
    ):
        spec = API_TABLE[key]
        assert (spec.version_min, spec.version_max) == (versions[0], versions[-1])
