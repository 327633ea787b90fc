import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.cli.replay_plan import (
    KEYS_BYTES_MAX,
    CopyPlan,
    ProducerId,
    Span,
    Wish,
    keys_hash,
    murmur2,
    partition_for_key,
)


def plan(*, sources: int, targets: int) -> CopyPlan:
    return CopyPlan(
        topic="rides",
        into="copy",
        spans={number: Span(10 * number, 100) for number in range(sources)},
        producers={number: ProducerId(7000 + number, 0) for number in range(sources)},
        source_count=sources,
        target_ends=dict.fromkeys(range(targets), 5),
    )


def wish(**changes: object) -> Wish:
    fields: dict[str, object] = {
        "topic": "rides",
        "from_text": "3 days ago",
        "to_text": "now",
        "into": "copy",
        "group": None,
        "keys": None,
    }
    return Wish(**(fields | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"abc", 479470107),
    ],
)
def test_keys_are_hashed_as_the_java_client_does(text: bytes, signed: int) -> None:
    assert murmur2(text) == signed & 0xFFFFFFFF


def test_with_as_many_partitions_messages_stay_in_theirs() -> None:
    same = plan(sources=3, targets=3)
    assert [same.target_for(source, b"any") for source in range(3)] == [0, 1, 2]
    assert list(same.targets_of(2)) == [2]


def test_with_other_partitions_the_key_decides_and_without_one_the_source() -> None:
    other = plan(sources=3, targets=2)
    assert {other.target_for(source, b"ride-7") for source in range(3)} == {
        partition_for_key(b"ride-7", 2)
    }
    assert [other.target_for(source, None) for source in range(3)] == [0, 1, 0]
    assert list(other.targets_of(2)) == [0, 1]


@given(st.binary(max_size=40), st.integers(1, 20))
def test_a_key_has_one_partition_and_it_exists(key: bytes, count: int) -> None:
    assert 0 <= partition_for_key(key, count) < count


def test_a_plan_is_read_back_as_it_was_recorded() -> None:
    begun = plan(sources=3, targets=2)
    assert CopyPlan.from_document(begun.to_document()) == begun
    assert begun.messages == 100 + 90 + 80


def test_the_same_words_are_the_same_replay_and_others_are_not() -> None:
    assert wish().fingerprint == wish().fingerprint
    others = [
        wish(topic="fares"),
        wish(from_text="2 days ago"),
        wish(to_text="1 day ago"),
        wish(into="copy2"),
        wish(into=None, group="copy"),
        wish(keys=frozenset({b"a"})),
        wish(keys=frozenset({b"a", b"b"})),
    ]
    assert len({each.fingerprint for each in [wish(), *others]}) == len(others) + 1


def test_keys_are_recorded_or_when_too_long_only_their_hash() -> None:
    few = wish(keys=frozenset({b"a", b"\xff\x00", b""}))
    assert Wish.from_document(few.to_document()) == few
    many = wish(keys=frozenset({b"k" * (KEYS_BYTES_MAX + 1)}))
    document = many.to_document()
    assert document["keys"] is None
    assert document["keys_hash"] == keys_hash(many.keys)
    assert Wish.from_document(document).keys is None


def test_keys_do_not_run_together_in_the_hash() -> None:
    assert keys_hash(frozenset({b"ab", b"c"})) != keys_hash(frozenset({b"a", b"bc"}))
    assert keys_hash(None) is None
