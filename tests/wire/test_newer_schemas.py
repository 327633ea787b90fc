"""Messages of Kafka 4.4, against bytes written by its Java client, and against what kio has learnt since."""

from uuid import UUID

import pytest
from kio.index import UnknownEntity, load_request_schema, load_response_schema

from respool.wire.api_table import Api
from respool.wire.client_codec import decode_reply, encode_request
from respool.wire.codec import decode_request, encode_reply
from respool.wire.newer_schemas import NEWER_REQUESTS, NEWER_RESPONSES
from respool.wire.schema import load_request_class, response_class, schema_of

HEADER_BYTES = 4 + 2 + 2 + 4 + 2 + len("me") + 1
TOPIC_ID = UUID("01234567-89ab-cdef-0123-456789abcdef")


def body_of(api: Api, version: int, **fields: object) -> bytes:
    frame = encode_request(api, version, fields, correlation_id=7, client_id="me")
    return frame[HEADER_BYTES:]


def reply_to(api: Api, version: int, asked: dict[str, object], **fields: object) -> bytes:
    """The reply, without its size and header."""
    frame = encode_request(api, version, asked, correlation_id=7, client_id="me")
    reply = encode_reply(decode_request(memoryview(frame)[4:]), fields)
    header_bytes = 8 if api is Api.API_VERSIONS else 9
    assert decode_reply(api, version, reply[4:])
    return bytes(reply[header_bytes:])


@pytest.mark.parametrize(("key", "version"), NEWER_REQUESTS)
def test_a_version_that_kio_has_learnt_is_deleted_here(key: int, version: int) -> None:
    for load in (load_request_schema, load_response_schema):
        with pytest.raises(UnknownEntity):
            load(key, version)


@pytest.mark.parametrize(("key", "version"), NEWER_REQUESTS)
def test_classes_say_what_they_are_for(key: int, version: int) -> None:
    assert NEWER_RESPONSES.keys() == NEWER_REQUESTS.keys()
    for load in (load_request_class, response_class):
        newer, before = load(key, version), load(key, version - 1)
        assert (newer.__api_key__, newer.__version__) == (key, version)
        assert newer.__flexible__ is before.__flexible__ is True
        assert newer.__type__ is before.__type__
        assert newer.__header_schema__ is before.__header_schema__
        assert newer.__name__ == before.__name__
        nested = [item.struct for item in schema_of(newer) if item.struct is not None]
        assert [(one.__api_key__, one.__version__) for one in nested] == [(key, version)] * len(
            nested
        )


def test_api_versions_5_has_the_bytes_of_kafkas_client() -> None:
    known: dict[str, object] = {"client_software_name": "j", "client_software_version": "4.4"}
    named = body_of(Api.API_VERSIONS, 5, **known, cluster_id="c", node_id=3)
    assert named.hex() == "026a04342e3402630000000300"
    assert body_of(Api.API_VERSIONS, 5, **known).hex() == "026a04342e3400ffffffff00"
    reply = reply_to(
        Api.API_VERSIONS,
        5,
        known,
        error_code=0,
        api_keys=[{"api_key": 18, "min_version": 0, "max_version": 5}],
        throttle_time=0,
        supported_features=[{"name": "f", "min_version": 0, "max_version": 2}],
        finalized_features_epoch=0,
        finalized_features=[{"name": "f", "max_version_level": 2, "min_version_level": 1}],
    )
    assert reply.hex() == (
        "000002001200000005000000000003000802026600000002000108000000000000000002080202660002000100"
    )


def test_txn_offset_commit_6_has_the_bytes_of_kafkas_client() -> None:
    partition = {
        "partition_index": 1,
        "committed_offset": 9,
        "committed_leader_epoch": 3,
        "committed_metadata": "x",
    }
    asked: dict[str, object] = {
        "transactional_id": "t",
        "group_id": "g",
        "producer_id": 5,
        "producer_epoch": 2,
        "generation_id": 4,
        "member_id": "m",
        "group_instance_id": "i",
        "topics": [{"topic_id": TOPIC_ID, "partitions": [partition]}],
    }
    assert body_of(Api.TXN_OFFSET_COMMIT, 6, **asked).hex() == (
        "027402670000000000000005000200000004026d026902"
        "0123456789abcdef0123456789abcdef"
        "02000000010000000000000009000000030278000000"
    )
    answer = {"partition_index": 1, "error_code": 100}
    reply = reply_to(
        Api.TXN_OFFSET_COMMIT,
        6,
        asked,
        throttle_time=1,
        topics=[{"topic_id": TOPIC_ID, "partitions": [answer]}],
    )
    assert reply.hex() == "00000001020123456789abcdef0123456789abcdef02000000010064000000"


def test_delete_groups_3_has_the_bytes_of_kafkas_client() -> None:
    asked: dict[str, object] = {"groups_names": ["g"]}
    assert body_of(Api.DELETE_GROUPS, 3, **asked).hex() == "02026700"
    results = [
        {"group_id": "g", "error_code": 68, "error_message": "no"},
        {"group_id": "h", "error_code": 0, "error_message": None},
    ]
    reply = reply_to(Api.DELETE_GROUPS, 3, asked, throttle_time=0, results=results)
    assert reply.hex() == "000000000302670044036e6f0002680000000000"
