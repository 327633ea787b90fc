"""Lists of throttled replicas, as Kafka's tools write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.model.errors import InvalidConfig
from respool.model.ids import BrokerId
from respool.model.throttled_replicas import TEXT_LENGTH_MAX, ThrottledReplicas

places = st.frozensets(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1)))


@given(wanted=places)
def test_a_list_is_read_as_it_was_written(wanted: frozenset[tuple[int, int]]) -> None:
    text = ",".join(f"{partition}:{broker}" for partition, broker in wanted)
    read = ThrottledReplicas.parse(text)
    assert read.places == wanted
    assert ThrottledReplicas.parse(str(read)) == read
    assert all(read.has(partition, BrokerId(broker)) for partition, broker in wanted)


@given(partition=st.integers(0, 9), broker=st.integers(0, 9))
def test_only_what_is_listed_is_throttled(partition: int, broker: int) -> None:
    read = ThrottledReplicas.parse("0:1, 3:2,")
    assert read.has(partition, BrokerId(broker)) == ((partition, broker) in {(0, 1), (3, 2)})


def test_a_star_stands_for_all() -> None:
    read = ThrottledReplicas.parse(" * ")
    assert read.has(7, BrokerId(9))
    assert str(read) == "*"


def test_nothing_is_throttled_by_default() -> None:
    assert not ThrottledReplicas().has(0, BrokerId(0))
    assert ThrottledReplicas.parse("") == ThrottledReplicas()
    assert str(ThrottledReplicas()) == ""


@pytest.mark.parametrize(
    "text", ["1", "1:2:3", "a:1", "-1:2", "*,0:1", "0:1;1:1", "٣:1", "0:1\n2:3"]
)
def test_what_is_no_list_of_replicas_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match="partition:broker"):
        ThrottledReplicas.parse(text)


def test_a_list_that_the_store_would_not_take_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="limit"):
        ThrottledReplicas.parse("0:1," * TEXT_LENGTH_MAX)
