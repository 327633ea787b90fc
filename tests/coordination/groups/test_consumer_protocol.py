import io
from typing import Any

import kio.schema.consumer_protocol_assignment as assignments
import kio.schema.consumer_protocol_subscription as subscriptions
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer

from coordination.group_world import subscription
from respool.coordination.groups.consumer_protocol import (
    Assignment,
    Subscription,
    read_assignment,
    read_subscription,
    subscribed_topics,
    write_assignment,
)
from respool.model.coordinator_errors import InconsistentGroupProtocol

versions = pytest.mark.parametrize("version", range(4))


def schema(package: Any, version: int) -> Any:
    return __import__(f"{package.__name__}.v{version}.data", fromlist=["data"])


def kio_bytes(version: int, entity: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return version.to_bytes(2, "big") + out.getvalue()


@versions
def test_subscriptions_are_read_as_kafka_s_schemas_write_them(version: int) -> None:
    words = schema(subscriptions, version)
    fields: dict[str, Any] = {"topics": ("rides", "bills"), "user_data": b"\1\2"}
    if version >= 1:
        fields["owned_partitions"] = (words.TopicPartition(topic="rides", partitions=(2, 0)),)
    if version >= 2:
        fields["generation_id"] = 7
    if version >= 3:
        fields["rack_id"] = "r1"
    data = kio_bytes(version, words.ConsumerProtocolSubscription(**fields))
    assert read_subscription(data) == Subscription(
        version,
        frozenset({"rides", "bills"}),
        {"rides": frozenset({0, 2})} if version >= 1 else {},
        "r1" if version >= 3 else None,
    )


@versions
def test_assignments_are_written_as_kafka_s_schemas_read_them(version: int) -> None:
    words = schema(assignments, version)
    data = write_assignment({"rides": frozenset({2, 0}), "bills": frozenset({1})}, version=version)
    assert data[:2] == version.to_bytes(2, "big")
    read, size = entity_reader(words.ConsumerProtocolAssignment)(data[2:], 0)
    assert size == len(data) - 2
    assert read == words.ConsumerProtocolAssignment(
        assigned_partitions=(
            words.TopicPartition(topic="bills", partitions=(1,)),
            words.TopicPartition(topic="rides", partitions=(0, 2)),
        ),
        user_data=None,
    )


@given(
    st.dictionaries(st.text(max_size=5), st.frozensets(st.integers(0, 9), min_size=1)),
    st.integers(0, 3),
)
def test_every_assignment_comes_back(partitions: dict[str, frozenset[int]], version: int) -> None:
    data = write_assignment(partitions, version=version)
    assert read_assignment(data) == Assignment(partitions, None)


def test_a_member_without_an_assignment_has_nothing() -> None:
    assert read_assignment(b"") == Assignment({}, None)


def test_newer_versions_are_read_as_the_newest_and_answered_in_it() -> None:
    words = schema(subscriptions, 3)
    entity = words.ConsumerProtocolSubscription(topics=("rides",), owned_partitions=())
    data = kio_bytes(9, entity) + b"something new"
    assert read_subscription(data).topic_names == {"rides"}
    assert write_assignment({}, version=9)[:2] == b"\0\3"
    assert write_assignment({}, version=-1)[:2] == b"\0\0"


def test_a_topic_named_twice_is_one() -> None:
    words = schema(subscriptions, 1)
    owned = tuple(words.TopicPartition(topic="rides", partitions=(n,)) for n in (0, 3))
    entity = words.ConsumerProtocolSubscription(topics=("rides",), owned_partitions=owned)
    assert read_subscription(kio_bytes(1, entity)).owned == {"rides": frozenset({0, 3})}


def test_user_data_of_an_assignor_is_seen() -> None:
    words = schema(assignments, 0)
    entity = words.ConsumerProtocolAssignment(assigned_partitions=(), user_data=b"x")
    assert read_assignment(kio_bytes(0, entity)).user_data == b"x"


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\0\0\0\0\1", b"\0\0\0\0\0\1\0\2\xff\xfe\0\0\0\0"])
def test_what_cannot_be_read_is_told(data: bytes) -> None:
    with pytest.raises(InconsistentGroupProtocol):
        read_subscription(data)
    if data:
        with pytest.raises(InconsistentGroupProtocol):
            read_assignment(data)


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for read in (read_subscription, read_assignment):
        try:
            read(data)
        except InconsistentGroupProtocol:
            continue


# -- subscribed topics -------------------------------------------------------------------------------------------------


def test_topics_of_all_members_are_read() -> None:
    assert subscribed_topics([subscription("a", "b"), subscription("b", "c")]) == frozenset("abc")
    assert subscribed_topics([]) == frozenset()


def test_later_versions_are_read_by_what_they_have_in_common() -> None:
    owned_and_more = b"\0\0\0\0 and whatever comes"
    assert subscribed_topics([b"\0\3" + subscription("a")[2:] + owned_and_more]) == frozenset("a")


def test_nothing_is_known_when_one_cannot_be_read() -> None:
    for unreadable in (b"", b"\0\0", subscription("abc")[:-6], b"\0\0\x7f\xff\xff\xff"):
        assert subscribed_topics([subscription("a"), unreadable]) is None
