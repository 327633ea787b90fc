"""Which batches a chunk has; a damaged header is found before it leads astray."""

from typing import Any

import pytest

from respool.broker.views.chunk_verdicts import batches_in
from respool.model.errors import SegmentCorrupt
from respool.model.ids import Offset
from respool.records.batch import HEADER_BYTES, pack_header, read_header
from respool.records.build import NewRecord, build_batch


def batch(offset: int, **damage: Any) -> bytes:
    data = build_batch([NewRecord(value=b"v")], base_offset=offset)
    return pack_header(read_header(data)._replace(**damage)) + data[HEADER_BYTES:]


def offsets_in(chunk: bytes, offset: int = 0) -> list[int]:
    return [int(one.header.base_offset) for one in batches_in(chunk, Offset(offset))]


def test_whole_batches_from_an_offset_on_are_found() -> None:
    chunk = batch(0) + batch(1) + batch(2) + batch(3)[:-1]
    assert offsets_in(chunk) == [0, 1, 2]
    assert offsets_in(chunk, 2) == [2]
    assert offsets_in(chunk[: HEADER_BYTES - 1]) == []


@pytest.mark.parametrize(
    "damage", [{"length": -12}, {"length": -(2**31)}, {"length": 48}, {"magic": 1}]
)
def test_a_damaged_header_is_damage_of_the_segment(damage: dict[str, int]) -> None:
    """With a length of -12 the next batch would begin there again, for ever."""
    with pytest.raises(SegmentCorrupt):
        batches_in(batch(0) + batch(1, **damage) + batch(2), Offset(0))
