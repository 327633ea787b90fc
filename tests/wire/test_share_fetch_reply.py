"""ShareFetch replies, read by kio."""

from typing import Any
from uuid import UUID

import pytest
from kio.serial import entity_reader

from respool.wire.hot_replies import NodeEndpoint
from respool.wire.schema import response_class
from respool.wire.share_fetch_reply import SharedPartition, encode_share_fetch_reply

TOPIC = UUID(int=9)
SHARE_FETCH = 78


def read(version: int, frame: bytes) -> Any:
    body_class = response_class(SHARE_FETCH, version)
    header, position = entity_reader(body_class.__header_schema__)(frame, 4)
    assert header.correlation_id == 5
    body, length = entity_reader(body_class)(frame, 4 + position)
    assert 4 + position + length == len(frame) == int.from_bytes(frame[:4], "big") + 4
    return body


@pytest.mark.parametrize("version", [1, 2])
def test_kio_reads_every_field(version: int) -> None:
    buffers = encode_share_fetch_reply(
        5,
        [
            (
                TOPIC,
                [
                    SharedPartition(
                        0,
                        records=[b"ab", memoryview(b"cde")],
                        record_bytes=5,
                        acquired=[(3, 7, 1), (9, 2**40, 4)],
                    ),
                    SharedPartition(
                        1,
                        error_code=6,
                        error_message="not here",
                        acknowledge_error_code=121,
                        acknowledge_error_message="ä",
                        current_leader=(3, 8),
                    ),
                ],
            )
        ],
        lock_duration_ms=30_000,
        node_endpoints=[NodeEndpoint(3, "host", 9092, "rack")],
    )
    assert memoryview(b"cde") in buffers
    reply = read(version, b"".join(buffers))
    assert reply.acquisition_lock_timeout.total_seconds() == 30
    (topic,) = reply.responses
    assert topic.topic_id == TOPIC
    full, failed = topic.partitions
    assert bytes(full.records) == b"abcde"
    assert [
        (one.first_offset, one.last_offset, one.delivery_count) for one in full.acquired_records
    ] == [(3, 7, 1), (9, 2**40, 4)]
    assert (full.error_code, full.error_message, full.acknowledge_error_code) == (0, None, 0)
    assert (failed.error_code, failed.error_message) == (6, "not here")
    assert (failed.acknowledge_error_code, failed.acknowledge_error_message) == (121, "ä")
    assert (failed.current_leader.leader_id, failed.current_leader.leader_epoch) == (3, 8)
    assert not failed.records
    (node,) = reply.node_endpoints
    assert (node.node_id, node.host, node.port, node.rack) == (3, "host", 9092, "rack")


def test_a_refusal_has_nothing_else() -> None:
    buffers = encode_share_fetch_reply(
        5, [], lock_duration_ms=0, error_code=122, error_message="no session"
    )
    reply = read(2, b"".join(buffers))
    assert (reply.error_code, reply.error_message, reply.responses) == (122, "no session", ())
