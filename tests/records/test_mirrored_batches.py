"""Batches on their way between clusters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.model.errors import CorruptMessage, InvalidRecord
from respool.model.ids import Offset
from respool.records.build import NewRecord, build_batch
from respool.records.mirrored_batches import (
    FILLER_OFFSETS_MAX,
    MIRRORED,
    OldFormat,
    Straddling,
    fillers,
    prepare,
    read_mirrored,
)
from respool.records.validate import check_stored, walk_batches

EPOCH_AT, EPOCH_END = 12, 16


def batch(base: int, count: int = 1, *, epoch: int = 3) -> bytes:
    records = [NewRecord(value=b"v" * 10, timestamp_ms=1)] * count
    return build_batch(records, base_offset=base, leader_epoch=epoch)


def spans(data: bytes) -> list[tuple[int, int, int]]:
    """First offset, next offset and record count of each batch, all of them sound."""
    found: list[tuple[int, int, int]] = []
    for position, header in walk_batches(data):
        assert check_stored(header, data[position : position + header.size])
        assert header.leader_epoch == MIRRORED
        found.append((header.base_offset, header.next_offset, header.record_count))
    return found


def test_what_is_sent_is_what_was_fetched_but_for_the_epoch() -> None:
    fetched = batch(0, 3) + batch(3, 2)
    prepared = prepare(fetched, begin=Offset(0))
    assert (prepared.end, prepared.leader_epoch, prepared.batch_count) == (5, 3, 2)
    sent = bytearray(prepared.data)
    for position, header in walk_batches(fetched):
        at = slice(position + EPOCH_AT, position + EPOCH_END)
        sent[at] = header.leader_epoch.to_bytes(4, signed=True)
    assert bytes(sent) == fetched


def test_what_the_copy_has_is_left_out_and_what_is_cut_off_comes_later() -> None:
    fetched = batch(0, 3) + batch(3, 2) + batch(5)[:-1]
    prepared = prepare(fetched, begin=Offset(3))
    assert spans(prepared.data) == [(3, 5, 2)]
    assert prepared.end == 5
    nothing = prepare(fetched[:30], begin=Offset(0))
    assert (nothing.data, nothing.end, nothing.leader_epoch) == (b"", 0, -1)


def test_an_empty_batch_stands_for_offsets_that_the_source_has_no_records_of() -> None:
    prepared = prepare(batch(4) + batch(5) + batch(9), begin=Offset(2))
    assert spans(prepared.data) == [(2, 4, 0), (4, 5, 1), (5, 6, 1), (6, 9, 0), (9, 10, 1)]


def test_a_copy_that_ends_inside_a_batch_is_not_of_this_source() -> None:
    with pytest.raises(Straddling, match="from offset 0 to 3, and the copy ends at 2"):
        prepare(batch(0, 4), begin=Offset(2))


def test_messages_from_before_the_format_are_refused() -> None:
    old = bytearray(batch(0))
    old[16] = 1
    with pytest.raises(OldFormat):
        prepare(bytes(old), begin=Offset(0))


def test_a_gap_too_wide_for_one_empty_batch_gets_several() -> None:
    end = 2 * FILLER_OFFSETS_MAX + 5
    found = spans(fillers(Offset(7), Offset(end)))
    assert found[0][0] == 7
    assert found[-1][1] == end
    assert [one[1] for one in found[:-1]] == [one[0] for one in found[1:]]
    assert len(found) == 2 + 1 - (end - 7 <= 2 * FILLER_OFFSETS_MAX)
    assert fillers(Offset(7), Offset(7)) == b""


def test_the_receiver_reads_what_the_mirror_sent() -> None:
    sent = prepare(batch(4, 2) + batch(9), begin=Offset(4)).data
    read = read_mirrored(sent)
    assert read is not None
    assert (read.base_offset, read.end, read.bases) == (4, 10, (4, 6, 9))


@pytest.mark.parametrize("epoch", [-1, 0, 7])
def test_what_others_send_is_told_apart(epoch: int) -> None:
    assert read_mirrored(batch(0, epoch=epoch)) is None
    assert read_mirrored(b"") is None
    assert read_mirrored(b"x" * 70) is None


def test_the_receiver_refuses_what_is_cut_off_or_left_out() -> None:
    first, later = (prepare(batch(base), begin=Offset(base)).data for base in (4, 6))
    with pytest.raises(InvalidRecord, match="begins at offset 6, the one before it ends at 5"):
        read_mirrored(first + later)
    for cut in (first[:-1], first[:30], first + later[:20]):
        with pytest.raises(CorruptMessage):
            read_mirrored(cut)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), max_size=8), st.data())
def test_sent_in_any_pieces_the_copy_is_whole_and_in_order(
    shape: list[tuple[int, int]], data: st.DataObject
) -> None:
    """The source's batches, with gaps before some of them, come in replies that are cut anywhere."""
    source, offset = b"", 0
    for gap, count in shape:
        source += batch(offset + gap, count)
        offset += gap + count
    headers = [header for _, header in walk_batches(source)]
    copy, end = b"", 0
    while end < offset:
        # A fetch brings the batch that holds the offset, or the next one, and as much behind it as there is room for.
        first = next(at for at, one in enumerate(headers) if one.last_offset >= end)
        position = sum(one.size for one in headers[:first])
        room = max(headers[first].size, data.draw(st.integers(0, len(source))))
        prepared = prepare(source[position : position + room], begin=Offset(end))
        read = read_mirrored(prepared.data)
        assert read is not None
        assert (read.base_offset, read.end) == (end, prepared.end)
        copy, end = copy + prepared.data, prepared.end
    found = spans(copy)
    assert [one[:2] for one in found if one[2]] == [
        (one.base_offset, one.next_offset) for one in headers
    ]
    ends = [0, *(one[1] for one in found)]
    assert [one[0] for one in found] == ends[:-1]
