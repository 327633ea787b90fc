"""Which partition a row goes to."""

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import DefaultPartitioner

from respool.client.arrow.writing.routing import Partitioner, Router
from respool.client.kafka.errors import BadArgument, UnknownPartition
from respool.records.batch import HEADER_BYTES

# As Kafka's own tests have them (UtilsTest.testMurmur2).
JAVA_VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def router(partitioner: Partitioner = "murmur2", *, room: int = 100, first: int = 0) -> Router:
    return Router("rides", partitioner, batch_bytes=HEADER_BYTES + room, first=first)


def route(
    one: Router,
    keys: list[bytes | None] | pa.Array | None,
    *,
    partitions: int,
    sizes: list[int] | None = None,
    chosen: pa.Array | None = None,
    count: int | None = None,
) -> list[int]:
    if isinstance(keys, list):
        keys = pa.array(keys, pa.binary())
    if count is None:
        given = chosen if keys is None else keys
        assert given is not None
        count = len(given)
    row_sizes = np.array(sizes or [10] * count, dtype=np.int64)
    return [
        int(number) for number in one.route(keys, None, chosen, row_sizes, partitions=partitions)
    ]


# By key.


@pytest.mark.parametrize("partitions", [1, 2, 3, 7, 100])
def test_keys_go_where_java_s_published_hashes_say(partitions: int) -> None:
    expected = [(value & 0x7FFFFFFF) % partitions for value in JAVA_VECTORS.values()]
    assert route(router(), list(JAVA_VECTORS), partitions=partitions) == expected


def test_a_hundred_thousand_random_keys_go_where_kafka_python_sends_them() -> None:
    rng = random.Random(6)
    keys = [rng.randbytes(rng.randrange(0, 40)) for _ in range(100_000)]
    theirs, cluster = DefaultPartitioner(), ClusterOfKafkaPython(partitions=61)
    expected = [theirs.partition("rides", key, key, None, None, cluster) for key in keys]
    assert route(router(), pa.array(keys, pa.binary()), partitions=61) == expected


class ClusterOfKafkaPython:
    """As much of its metadata as its partitioner asks for."""

    def __init__(self, *, partitions: int) -> None:
        self._partitions = set(range(partitions))

    def topics(self) -> set[str]:
        return {"rides"}

    def partitions_for_topic(self, topic: str) -> set[int]:
        return self._partitions

    def available_partitions_for_topic(self, topic: str) -> set[int]:
        return self._partitions


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.large_binary(), pa.string_view(), pa.binary_view()]
)
def test_a_key_s_type_does_not_change_its_partition(kind: pa.DataType) -> None:
    keys = ["21", "foobar", None, "abc"]
    plain = route(router(), pa.array(keys, pa.string()).cast(pa.binary()), partitions=9)
    assert route(router(), pa.array(keys, pa.string()).cast(kind), partitions=9) == plain
    words = pa.array(keys, pa.string()).dictionary_encode()
    assert route(router(), words, partitions=9) == plain


# Without one.


def test_rows_without_a_key_fill_a_batch_for_one_partition_and_then_for_the_next() -> None:
    one = router(room=30, first=2)
    assert route(one, None, partitions=3, count=7) == [2, 2, 2, 0, 0, 0, 1]
    assert route(one, None, partitions=3, count=4) == [1, 1, 2, 2]


def test_a_row_larger_than_a_batch_has_a_turn_of_its_own() -> None:
    one = router(room=30)
    assert route(one, None, partitions=3, sizes=[100, 10, 10, 100, 10], count=5) == [0, 1, 1, 2, 0]
    assert route(one, None, partitions=3, sizes=[30, 10], count=2) == [1, 2]


@given(sizes=st.lists(st.integers(1, 50), min_size=1, max_size=40), cut_at=st.integers(0, 40))
def test_how_a_table_is_handed_over_does_not_change_where_rows_without_a_key_go(
    sizes: list[int], cut_at: int
) -> None:
    whole = route(router(), None, partitions=4, sizes=sizes, count=len(sizes))
    one = router()
    parts = [part for part in (sizes[:cut_at], sizes[cut_at:]) if part]
    found = [
        number
        for part in parts
        for number in route(one, None, partitions=4, sizes=part, count=len(part))
    ]
    assert found == whole


def test_rows_without_a_key_do_not_move_those_that_have_one() -> None:
    mixed = route(router(), [b"21", None, b"foobar", None], partitions=5)
    alone = route(router(), [b"21", b"foobar"], partitions=5)
    assert [mixed[0], mixed[2]] == alone


def test_round_robin_goes_on_with_every_row_whatever_its_key() -> None:
    one = router("round-robin", first=1)
    assert route(one, [b"same"] * 4, partitions=3) == [1, 2, 0, 1]
    assert route(one, [None, None], partitions=3) == [2, 0]


# By others.


def test_a_function_chooses() -> None:
    def by_length(keys: pa.Array, values: pa.Array, partitions: int) -> Any:
        assert values.null_count == len(keys)
        return [len(key.as_py() or b"") % partitions for key in keys]

    assert route(router(by_length), [b"", b"a", b"abc", None], partitions=3) == [0, 1, 0, 0]


@pytest.mark.parametrize(
    "answer",
    [[0], [0.5, 1.0], "ab", [[0], [1]], pa.array([0, None])],
    ids=["too few", "fractions", "text", "two dimensions", "null"],
)
def test_a_function_that_does_not_choose_for_each_row_is_told_so(answer: Any) -> None:
    with pytest.raises(BadArgument, match="the partitioner returned"):
        route(router(lambda *_: answer), [b"a", b"b"], partitions=3)


@pytest.mark.parametrize("wrong", [-1, 3])
def test_a_partition_that_is_not_there_is_refused(wrong: int) -> None:
    with pytest.raises(UnknownPartition, match=f"no partition {wrong}; it has 3"):
        route(router(lambda *_: [0, wrong]), [b"a", b"b"], partitions=3)
    with pytest.raises(UnknownPartition):
        route(router(), [b"a", b"b"], partitions=3, chosen=pa.array([0, wrong]))


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint16(), pa.int32(), pa.int64()])
def test_a_column_chooses_and_where_it_is_null_the_key_does(kind: pa.DataType) -> None:
    by_key = route(router(), [b"21", b"foobar", b"abc"], partitions=5)
    chosen = pa.array([4, None, 0], kind)
    assert route(router(), [b"21", b"foobar", b"abc"], partitions=5, chosen=chosen) == [
        4,
        by_key[1],
        0,
    ]


def test_an_unknown_partitioner_is_refused_with_those_there_are() -> None:
    with pytest.raises(BadArgument, match="'murmur2', 'round-robin' or a function"):
        router("random")  # type: ignore[arg-type]
