"""The bytes are written out by hand from the schemas that Kafka 4 publishes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordination.consumer_world import topic_id
from coordination.group_world import FUZZ
from respool.coordination.groups.consumer.consumer_member import ClassicDetails, MemberState
from respool.coordination.groups.consumer.consumer_record_bytes import (
    read_consumer_key,
    read_consumer_value,
    write_consumer_key,
    write_consumer_value,
)
from respool.coordination.groups.consumer.consumer_records import (
    CONSUMER_RECORD_KINDS,
    ConsumerRecordKey,
    ConsumerRecordKind,
    ConsumerRecordValue,
    CurrentValue,
    GroupValue,
    MemberValue,
    PatternValue,
    TargetEpochValue,
    TargetValue,
    TopicsValue,
)
from respool.coordination.groups.group_requests import Protocol
from respool.coordination.record_bytes import CoordinatorRecordDamaged

Kind = ConsumerRecordKind
T1 = topic_id(1)
T1_HEX = "00000000000000000000000000000001"


@pytest.mark.parametrize(
    ("key", "data"),
    [
        (ConsumerRecordKey(Kind.GROUP, "g"), "0003 0001 67"),
        (ConsumerRecordKey(Kind.TOPICS, "g"), "0004 0001 67"),
        (ConsumerRecordKey(Kind.MEMBER, "g", "ann"), "0005 0001 67 0003 616e6e"),
        (ConsumerRecordKey(Kind.TARGET_EPOCH, "g"), "0006 0001 67"),
        (ConsumerRecordKey(Kind.TARGET, "g", "ann"), "0007 0001 67 0003 616e6e"),
        (ConsumerRecordKey(Kind.CURRENT, "g", "ann"), "0008 0001 67 0003 616e6e"),
        (ConsumerRecordKey(Kind.PATTERN, "g", "a.*"), "0010 0001 67 0003 612e2a"),
    ],
)
def test_keys_are_kafka_s(key: ConsumerRecordKey, data: str) -> None:
    assert write_consumer_key(key) == bytes.fromhex(data)
    assert read_consumer_key(bytes.fromhex(data)) == key


MEMBER = MemberValue(
    instance_id=None,
    rack_id="r",
    client_id="app",
    client_host="/h",
    topic_names=frozenset({"b", "a"}),
    topic_pattern=None,
    rebalance_timeout_ms=60_000,
    assignor="uniform",
    classic=None,
)
MEMBER_HEX = "0000 00 0272 04617070 032f68 03 0261 0262 00 0000ea60 08756e69666f726d"


@pytest.mark.parametrize(
    ("kind", "value", "data"),
    [
        (Kind.GROUP, GroupValue(10), "0000 0000000a 00"),
        # One tagged field: its tag, its size, its eight bytes.
        (Kind.GROUP, GroupValue(10, -2), "0000 0000000a 01 00 08 fffffffffffffffe"),
        (
            Kind.GROUP,
            GroupValue(10, 5, 7),
            "0000 0000000a 02 00 08 0000000000000005 e807 08 0000000000000007",
        ),
        (Kind.TARGET_EPOCH, TargetEpochValue(3), "0000 00000003 00"),
        (Kind.TARGET, TargetValue({}), "0000 01 00"),
        (
            Kind.TARGET,
            TargetValue({T1: frozenset({2, 0})}),
            f"0000 02 {T1_HEX} 03 00000000 00000002 00 00",
        ),
        (
            Kind.CURRENT,
            CurrentValue(5, 4, MemberState.UNREVOKED, {T1: frozenset({0})}, {T1: frozenset({1})}),
            f"0000 00000005 00000004 01 02 {T1_HEX} 02 00000000 00 02 {T1_HEX} 02 00000001 00 00",
        ),
        (Kind.MEMBER, MEMBER, f"{MEMBER_HEX} 00"),
        # The tagged field begins with a byte that says it is not null.
        (
            Kind.MEMBER,
            MEMBER._replace(classic=ClassicDetails(10_000, (Protocol("range", b"\1\2"),))),
            f"{MEMBER_HEX} 01 00 11 01 00002710 02 0672616e6765 030102 00 00",
        ),
        (
            Kind.PATTERN,
            PatternValue(frozenset({"a"}), 9, 4),
            "0000 02 0261 0000000000000004 0000000000000009 00",
        ),
    ],
)
def test_values_are_kafka_s(kind: Kind, value: ConsumerRecordValue, data: str) -> None:
    assert write_consumer_value(value).hex(" ") == bytes.fromhex(data).hex(" ")
    assert read_consumer_value(kind, bytes.fromhex(data)) == value


def test_what_newer_releases_add_is_passed_over() -> None:
    # KIP-1251 gives each topic's partitions a tagged field, KIP-1263 the assignment a time.
    epochs = "01 00 05 02 00000005"
    current = f"0000 00000005 00000004 00 02 {T1_HEX} 02 00000000 {epochs} 01 00"
    assert read_consumer_value(Kind.CURRENT, bytes.fromhex(current)) == CurrentValue(
        5, 4, MemberState.STABLE, {T1: frozenset({0})}, {}
    )
    target = "0000 00000003 01 00 08 0000000000000009"
    assert read_consumer_value(Kind.TARGET_EPOCH, bytes.fromhex(target)) == TargetEpochValue(3)


def test_a_state_not_known_here_is_unknown() -> None:
    value = read_consumer_value(Kind.CURRENT, bytes.fromhex("0000 00000005 00000004 2a 01 01 00"))
    assert isinstance(value, CurrentValue)
    assert value.state is MemberState.UNKNOWN


def test_an_empty_pattern_is_none_as_kafka_writes_it() -> None:
    data = "0000 00 00 04617070 032f68 01 01 0000ea60 00 00"
    value = read_consumer_value(Kind.MEMBER, bytes.fromhex(data))
    assert isinstance(value, MemberValue)
    assert value.topic_pattern is None


def test_the_topics_record_of_old_is_noticed_and_not_looked_at() -> None:
    assert read_consumer_value(Kind.TOPICS, bytes.fromhex("0000 ffff")) == TopicsValue()


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (Kind.GROUP, "0001 0000000a 00"),
        (Kind.GROUP, "0000 0000000a"),
        (Kind.GROUP, "0000 0000000a 00 00"),
        (Kind.GROUP, "0000 0000000a 01 00 02 0000"),
        (Kind.TARGET, f"0000 03 {T1_HEX} 01 00 00"),
        (Kind.MEMBER, "0000 00 00 00"),
    ],
)
def test_a_damaged_value_is_told(kind: Kind, data: str) -> None:
    with pytest.raises(CoordinatorRecordDamaged):
        read_consumer_value(kind, bytes.fromhex(data))


@pytest.mark.parametrize("data", ["0003 0002 67", "0003 0001 67 00", "0005 0001 67", "0003 ffff"])
def test_a_damaged_key_is_told(data: str) -> None:
    with pytest.raises(CoordinatorRecordDamaged):
        read_consumer_key(bytes.fromhex(data))


texts = st.text(max_size=8)
partition_sets = st.dictionaries(
    st.builds(topic_id, st.integers(0, 2**128 - 1)),
    st.frozensets(st.integers(0, 2**31 - 1), min_size=1, max_size=5),
    max_size=3,
)
epochs = st.integers(-2, 2**31 - 1)
values: dict[Kind, st.SearchStrategy[ConsumerRecordValue]] = {
    Kind.GROUP: st.builds(
        GroupValue, epochs, st.integers(-(2**63), 2**63 - 1), st.integers(-1, 2**63 - 1)
    ),
    Kind.MEMBER: st.builds(
        MemberValue,
        instance_id=st.none() | texts,
        rack_id=st.none() | texts,
        client_id=texts,
        client_host=texts,
        topic_names=st.frozensets(texts),
        topic_pattern=st.none() | st.text(min_size=1, max_size=8),
        rebalance_timeout_ms=st.integers(-1, 2**31 - 1),
        assignor=st.none() | texts,
        classic=st.none()
        | st.builds(
            ClassicDetails,
            st.integers(0, 2**31 - 1),
            st.lists(st.builds(Protocol, texts, st.binary(max_size=300)), max_size=3).map(tuple),
        ),
    ),
    Kind.TARGET_EPOCH: st.builds(TargetEpochValue, epochs),
    Kind.TARGET: st.builds(TargetValue, partition_sets),
    Kind.CURRENT: st.builds(
        CurrentValue, epochs, epochs, st.sampled_from(MemberState), partition_sets, partition_sets
    ),
    Kind.PATTERN: st.builds(
        PatternValue, st.frozensets(texts), st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1)
    ),
}


@pytest.mark.long
@settings(max_examples=5_000 if FUZZ else 100, deadline=None)
@given(st.data())
def test_every_value_comes_back_and_every_cut_is_noticed(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(list(values)))
    value = data.draw(values[kind])
    written = write_consumer_value(value)
    assert read_consumer_value(kind, written) == value
    cut = data.draw(st.integers(0, len(written) - 1))
    with pytest.raises(CoordinatorRecordDamaged):
        read_consumer_value(kind, written[:cut])


@given(st.sampled_from(sorted(CONSUMER_RECORD_KINDS)), texts, texts)
def test_every_key_comes_back(kind: Kind, group_id: str, name: str) -> None:
    with_name = kind in {Kind.MEMBER, Kind.TARGET, Kind.CURRENT, Kind.PATTERN}
    key = ConsumerRecordKey(kind, group_id, name if with_name else "")
    assert read_consumer_key(write_consumer_key(key)) == key
