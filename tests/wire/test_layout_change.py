"""What brokers say about layouts of partitions, in tagged fields."""

import pytest

from respool.wire.layout_change import PartitionCounts, format_counts, parse_counts


def test_the_numbers_of_partitions_are_read_as_they_were_written() -> None:
    counts = PartitionCounts(active=3, named=6)
    assert format_counts(counts) == '{"active":3,"named":6}'
    assert parse_counts(format_counts(counts)) == counts


def test_a_topic_that_was_never_shrunk_has_no_text() -> None:
    assert parse_counts("") is None


@pytest.mark.parametrize(
    "text", ["3", "[]", "{", '{"active":3}', '{"active":0,"named":6}', '{"active":7,"named":6}']
)
def test_what_no_broker_sends_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_counts(text)
