"""A Fetch reply seen in place, against what our broker writes and what kio reads."""

from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.wire.api_table import Api
from respool.wire.client_codec import decode_reply
from respool.wire.fetch_reply import FetchedPart, read_fetch_reply
from respool.wire.hot_replies import (
    FetchedPartition,
    FetchReplyTopic,
    NodeEndpoint,
    encode_fetch_reply,
)
from respool.wire.protocol_errors import RequestMalformed

INT64 = st.integers(-(2**63), 2**63 - 1)
INT32 = st.integers(0, 2**31 - 1)
VERSIONS = st.sampled_from([12, 13, 16, 17])

partitions = st.builds(
    FetchedPartition,
    partition=INT32,
    error_code=st.sampled_from([0, 1, 6, 74]),
    high_watermark=INT64,
    last_stable_offset=INT64,
    log_start_offset=INT64,
    records=st.binary(max_size=300),
    aborted=st.none() | st.lists(st.tuples(INT64, INT64), max_size=3),
    diverging_epoch=st.none() | st.tuples(INT32, st.integers(0, 2**63 - 1)),
    preferred_read_replica=st.just(-1),
    current_leader=st.none() | st.tuples(INT32, INT32),
    file_range=st.none(),
)
topics = st.builds(
    FetchReplyTopic,
    name=st.text(min_size=1, max_size=10),
    topic_id=st.uuids(),
    partitions=st.lists(partitions, max_size=3),
)
replies = st.lists(topics, max_size=3)


def frame_of(version: int, found: list[FetchReplyTopic], **fields: Any) -> memoryview:
    return memoryview(b"".join(encode_fetch_reply(7, version, found, **fields)))[4:]


@given(VERSIONS, replies, st.sampled_from([0, 70]))
def test_everything_the_broker_says_is_read_as_kio_reads_it(
    version: int, found: list[FetchReplyTopic], code: int
) -> None:
    endpoints = [NodeEndpoint(1, "host", 9092)] if version >= 16 else []
    frame = frame_of(version, found, error_code=code, session_id=9, node_endpoints=endpoints)
    seen = read_fetch_reply(frame, version)
    reply = decode_reply(Api.FETCH, version, bytes(frame))
    assert seen.error_code == reply.error_code == code
    assert seen.session_id == reply.session_id == 9
    assert [in_words(part) for part in seen.parts] == [
        in_words_of_kio(topic, one) for topic in reply.responses for one in topic.partitions
    ]


@given(VERSIONS, replies, st.data())
def test_a_reply_that_is_cut_or_garbled_is_refused_or_read_but_never_reaches_beyond_it(
    version: int, found: list[FetchReplyTopic], data: st.DataObject
) -> None:
    frame = bytearray(frame_of(version, found))
    if data.draw(st.booleans()):
        del frame[data.draw(st.integers(4, len(frame))) :]
    else:
        at = data.draw(st.integers(4, len(frame) - 1))
        frame[at] = data.draw(st.integers(0, 255))
    try:
        seen = read_fetch_reply(memoryview(frame), version)
    except RequestMalformed:
        return
    assert sum(len(part.records) for part in seen.parts) <= len(frame)


def test_every_reply_that_is_cut_short_is_refused() -> None:
    one = FetchedPartition(0, 0, 9, 9, 0, b"records", [(1, 2)], diverging_epoch=(1, 2))
    frame = frame_of(13, [FetchReplyTopic("rides", uuid4(), [one])])
    for size in range(4, len(frame)):
        with pytest.raises(RequestMalformed):
            read_fetch_reply(frame[:size], 13)


def test_records_are_not_copied() -> None:
    one = FetchedPartition(0, 0, 9, 9, 0, b"a" * 1000)
    frame = bytearray(frame_of(13, [FetchReplyTopic("rides", uuid4(), [one])]))
    (part,) = read_fetch_reply(memoryview(frame), 13).parts
    at = frame.index(b"aaa")
    frame[at] = ord("b")
    assert part.records[0] == ord("b")


def in_words(part: FetchedPart) -> tuple[Any, ...]:
    return (
        part.topic,
        part.partition,
        part.error_code,
        part.high_watermark,
        part.last_stable_offset,
        part.log_start,
        part.aborted,
        bytes(part.records),
        part.diverging,
        part.leader,
    )


def in_words_of_kio(topic: Any, one: Any) -> tuple[Any, ...]:
    diverging = (one.diverging_epoch.epoch, one.diverging_epoch.end_offset)
    leader = (one.current_leader.leader_id, one.current_leader.leader_epoch)
    return (
        # kio shows the zero id as None.
        topic.topic if hasattr(topic, "topic") else topic.topic_id or UUID(int=0),
        one.partition_index,
        int(one.error_code),
        one.high_watermark,
        one.last_stable_offset,
        one.log_start_offset,
        tuple((each.producer_id, each.first_offset) for each in one.aborted_transactions or ()),
        one.records or b"",
        None if diverging[1] < 0 else diverging,
        None if leader[0] < 0 else leader,
    )
