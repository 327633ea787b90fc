"""Where records lie, told in a Fetch reply: read back as it was, unseen by who does not know of it."""

from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.model.file_range import FileRange
from respool.wire.api_table import Api
from respool.wire.client_codec import decode_reply, encode_request
from respool.wire.codec import decode_request
from respool.wire.fetch_reply import read_fetch_reply
from respool.wire.hot_replies import FetchedPartition, FetchReplyTopic, encode_fetch_reply
from respool.wire.local_read import unpack_file_range
from respool.wire.protocol_errors import RequestMalformed
from respool.wire.schema import load_request_class
from respool.wire.schema_extensions import REPLICA_FETCH_VERSION

NUMBER = st.integers(0, 2**64 - 1)
# As file systems have them: any bytes but NUL.
PATHS = st.binary(max_size=80).map(
    lambda name: "/" + name.replace(b"\0", b"").decode("utf-8", "surrogateescape")
)
places = st.builds(
    FileRange,
    path=PATHS,
    device=NUMBER,
    inode=NUMBER,
    position=st.integers(0, 2**63 - 1),
    size=st.integers(21, 2**31 - 1),
    head=st.binary(min_size=21, max_size=21),
)
PLACE = FileRange("/data/rides-0/00.log", 1, 2, 3, 400, bytes(range(21)))


def reply_with(*partitions: FetchedPartition, version: int = 13) -> memoryview:
    topics = [FetchReplyTopic("rides", uuid4(), partitions)]
    return memoryview(b"".join(encode_fetch_reply(7, version, topics)))[4:]


def fetch(version: int, **fields: Any) -> bytes:
    return encode_request(
        Api.FETCH,
        version,
        {
            "max_wait": 500,
            "min_bytes": 1,
            "max_bytes": 1_000,
            "isolation_level": 0,
            "topics": [],
            "forgotten_topics_data": [],
            "rack_id": "",
            **fields,
        },
        correlation_id=1,
        client_id="x",
    )


@given(places)
def test_a_place_is_read_as_it_was_told(file_range: FileRange) -> None:
    local_read = FetchedPartition(3, 0, 9, 8, 1, b"", diverging_epoch=(1, 2), file_range=file_range)
    sent = FetchedPartition(4, 0, 9, 8, 1, b"records")
    first, second = read_fetch_reply(reply_with(local_read, sent), 13).parts
    assert (first.file_range, bytes(first.records), first.diverging) == (file_range, b"", (1, 2))
    assert (second.file_range, bytes(second.records)) == (None, b"records")


def test_who_does_not_know_of_it_finds_no_records() -> None:
    local_read = FetchedPartition(3, 0, 9, 8, 1, b"", file_range=PLACE)
    reply = decode_reply(Api.FETCH, 13, bytes(reply_with(local_read)))
    (partition,) = reply.responses[0].partitions
    assert (partition.partition_index, partition.high_watermark) == (3, 9)
    assert not partition.records


def test_what_is_lent_counts_as_what_is_sent() -> None:
    assert FetchedPartition(3, 0, 9, 8, 1, b"", file_range=PLACE).record_bytes == 400
    assert FetchedPartition(3, 0, 9, 8, 1, b"sent").record_bytes == 4


@pytest.mark.parametrize(
    "bad",
    [
        PLACE._replace(path="relative"),
        PLACE._replace(path="/with\0nul"),
        PLACE._replace(position=-1),
        PLACE._replace(size=0),
        PLACE._replace(size=-4),
        PLACE._replace(size=20),
    ],
)
def test_what_is_no_place_is_refused(bad: FileRange) -> None:
    with pytest.raises(RequestMalformed, match="not a file range"):
        read_fetch_reply(reply_with(FetchedPartition(0, 0, 9, 9, 0, b"", file_range=bad)), 13)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_place_or_refused(content: bytes) -> None:
    try:
        file_range = unpack_file_range(memoryview(content))
    except ValueError:
        return
    assert file_range.size > 0
    assert file_range.path.startswith("/")


@pytest.mark.parametrize("version", [13, REPLICA_FETCH_VERSION])
def test_a_reader_says_where_it_is(version: int) -> None:
    request = decode_request(memoryview(fetch(version, reader_host="this machine"))[4:])
    assert request.body.reader_host == "this machine"
    request = decode_request(memoryview(fetch(version))[4:])
    assert request.body.reader_host == ""


def test_who_says_nothing_sends_what_kafka_defines() -> None:
    ours = fetch(13)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("respool.wire.client_codec.request_class", load_request_class)
        assert fetch(13) == ours
