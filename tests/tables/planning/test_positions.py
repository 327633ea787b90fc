"""What a table lacks, by its positions and the log's ends."""

import pytest

from respool.tables.errors import PositionBeyondLog, RecordsDeleted
from respool.tables.planning.positions import DeletedOffsets, LogEnds, TopicRange, lacking

ENDS = {0: LogEnds(start=5, end=9), 1: LogEnds(start=0, end=4), 2: LogEnds(start=0, end=0)}


def test_a_partition_goes_on_at_its_position_and_a_new_one_at_the_log_start() -> None:
    found = lacking({1: 3}, ENDS, topic="rides", accept_gaps=False)
    assert found.ranges == (
        TopicRange(partition=0, begin=5, end=9),
        TopicRange(partition=1, begin=3, end=4),
    )
    assert lacking({0: 9, 1: 4, 2: 0}, ENDS, topic="rides", accept_gaps=False).ranges == ()


def test_deleted_offsets_are_an_error_unless_they_are_accepted() -> None:
    with pytest.raises(RecordsDeleted, match=r"2 offsets of rides .* offsets 3 to 4") as caught:
        lacking({0: 3}, ENDS, topic="rides", accept_gaps=False)
    assert "respool.table.gap=continue" in caught.value.hint
    found = lacking({0: 3}, ENDS, topic="rides", accept_gaps=True)
    assert found.gaps == (DeletedOffsets(partition=0, begin=3, end=5),)
    assert found.ranges[0] == TopicRange(partition=0, begin=5, end=9)


def test_a_position_beyond_the_log_is_an_error_whatever_is_accepted() -> None:
    with pytest.raises(PositionBeyondLog):
        lacking({1: 5}, ENDS, topic="rides", accept_gaps=True)
