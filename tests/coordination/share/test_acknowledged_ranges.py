"""Acknowledgements as clients write them."""

from dataclasses import dataclass

import pytest

from respool.coordination.share.acknowledged_ranges import AcknowledgeType, acknowledged_ranges
from respool.model.errors import InvalidRequest


@dataclass(frozen=True)
class Batch:
    first_offset: int
    last_offset: int
    acknowledge_types: tuple[int, ...]


def test_one_type_stands_for_a_whole_range() -> None:
    ranges = acknowledged_ranges([Batch(3, 9, (1,)), Batch(10, 10, (0,))], is_renewing=False)
    assert ranges == [(3, 9, AcknowledgeType.ACCEPT), (10, 10, AcknowledgeType.GAP)]


def test_types_of_single_offsets_become_ranges() -> None:
    ranges = acknowledged_ranges([Batch(5, 9, (1, 1, 2, 3, 3))], is_renewing=False)
    assert ranges == [(5, 6, 1), (7, 7, 2), (8, 9, 3)]


@pytest.mark.parametrize(
    "batches",
    [
        [Batch(5, 4, (1,))],
        [Batch(-1, 4, (1,))],
        [Batch(0, 4, ())],
        [Batch(0, 4, (1, 1))],
        [Batch(0, 1, (1, 1, 1))],
        [Batch(0, 1, (5,))],
        [Batch(0, 1, (-1,))],
        [Batch(0, 1, (4,))],
        [Batch(3, 4, (1,)), Batch(4, 5, (1,))],
        [Batch(3, 4, (1,)), Batch(0, 1, (1,))],
    ],
)
def test_other_forms_are_refused(batches: list[Batch]) -> None:
    with pytest.raises(InvalidRequest):
        acknowledged_ranges(batches, is_renewing=False)


def test_only_a_request_that_says_so_renews() -> None:
    batch = Batch(0, 1, (4,))
    assert acknowledged_ranges([batch], is_renewing=True) == [(0, 1, AcknowledgeType.RENEW)]
