"""A position goes into a checkpoint and comes back, also one that Spark's Kafka connector wrote."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.spark.source.stream_offset import (
    CheckpointUnreadable,
    Position,
    TopicAt,
    from_json,
    to_json,
)

topics = st.builds(
    TopicAt, st.none() | st.just("i"), st.dictionaries(st.integers(0, 20), st.integers(0, 2**62))
)


@given(st.dictionaries(st.text(min_size=1), topics))
def test_a_position_comes_back_from_json_as_it_was(position: Position) -> None:
    text = json.dumps(to_json(position))
    assert from_json(json.loads(text)) == position
    assert json.dumps(to_json(from_json(json.loads(text)))) == text


def test_a_checkpoint_of_sparks_kafka_connector_is_read() -> None:
    assert from_json({"rides": {"0": 23, "1": 4}}) == {"rides": TopicAt(None, {0: 23, 1: 4})}


@pytest.mark.parametrize("wrong", [{"a": 1}, {"a": {"0": "x"}}, {"a": {"x": 1}}, {"a": {"0": -1}}])
def test_what_is_no_position_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(CheckpointUnreadable, match="another source"):
        from_json(wrong)


def test_topics_are_told_apart_by_ids_where_both_are_known() -> None:
    assert TopicAt("a", {}).is_another_than(TopicAt("b", {}))
    assert not TopicAt("a", {}).is_another_than(TopicAt("a", {}))
    assert not TopicAt(None, {}).is_another_than(TopicAt("b", {}))
