"""An archived segment's trailer: it says where records are, and whether bytes are those that were archived."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archive.archived_log import batches, summarized
from respool.archive.segment_summary import SegmentSummary
from respool.archive.segment_trailer import FOOTER_BYTES, ArchivedAbort, EpochStart, SegmentTrailer
from respool.model.archiving.archive_errors import ArchiveCorrupt
from respool.model.ids import LeaderEpoch, Offset

offsets = st.integers(0, 2**62)


@given(
    base=st.integers(0, 2**40),
    steps=st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 10_000)), max_size=20),
    times=st.lists(st.integers(0, 2**50), max_size=10, unique=True),
    aborted=st.lists(st.builds(ArchivedAbort, st.integers(0, 99), offsets, offsets), max_size=5),
    producers=st.binary(max_size=100),
    log_bytes=st.integers(1, 10_000),
)
def test_a_trailer_survives_encoding(  # noqa: PLR0917
    base: int,
    steps: list[tuple[int, int]],
    times: list[int],
    aborted: list[ArchivedAbort],
    producers: bytes,
    log_bytes: int,
) -> None:
    entries, last, position = [], base, 0
    for offset_step, position_step in steps:
        last, position = last + offset_step, position + position_step
        entries.append((Offset(last), position))
    trailer = SegmentTrailer(
        base=Offset(base),
        next=Offset(last + 1),
        log_bytes=log_bytes,
        chunk_bytes=512,
        offsets=entries,
        times=[(time, Offset(base + at)) for at, time in enumerate(sorted(times))],
        aborted=aborted,
        producers=producers,
        epochs=[EpochStart(LeaderEpoch(1), Offset(0))],
        chunk_sums=[at * 7 for at in range(-(-log_bytes // 512))],
    )
    decoded = SegmentTrailer.decode(trailer.encode(), name="test")
    assert list(decoded.offsets) == list(trailer.offsets)
    assert list(decoded.times) == list(trailer.times)
    assert list(decoded.chunk_sums) == list(trailer.chunk_sums)
    for name in ("base", "next", "log_bytes", "aborted", "producers", "epochs"):
        assert getattr(decoded, name) == getattr(trailer, name)


@given(data=st.data())
def test_no_flipped_bit_of_a_trailer_is_accepted(data: st.DataObject) -> None:
    encoded = bytearray(summarized(b"".join(batches(5, [3, 4])), 5, 12).encode())
    bit = data.draw(st.integers(0, len(encoded) * 8 - 1))
    encoded[bit // 8] ^= 1 << bit % 8
    with pytest.raises(ArchiveCorrupt):
        SegmentTrailer.decode(bytes(encoded), name="test")


@given(data=st.binary(max_size=300))
def test_garbage_is_refused_as_a_trailer(data: bytes) -> None:
    with pytest.raises(ArchiveCorrupt):
        SegmentTrailer.decode(data, name="test")


@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=40), piece=st.integers(1, 400))
def test_each_offset_and_time_is_found_at_or_after_the_position_named(
    sizes: list[int], piece: int
) -> None:
    made = batches(100, sizes, value_bytes=2_000)
    data, end = b"".join(made), 100 + sum(sizes)
    trailer = summarized(data, 100, end, piece=piece * 50, chunk_bytes=4096)
    starts, position, offset = {}, 0, 100
    for one, size in zip(made, sizes, strict=True):
        for at in range(size):
            starts[offset + at] = position
        offset, position = offset + size, position + len(one)
    for wanted, start in starts.items():
        assert trailer.position_before(Offset(wanted)) <= start
        # The record at this offset has the time 1000 + offset.
        assert trailer.offset_before_time(1_000 + wanted) <= wanted
    assert trailer.log_bytes == len(data)
    for number in range(len(trailer.chunk_sums)):
        trailer.check_chunk(number, data[number * 4096 : (number + 1) * 4096], name="test")


def test_a_flipped_bit_anywhere_in_a_chunk_is_noticed() -> None:
    data = b"".join(batches(0, [4, 4, 4]))
    trailer = summarized(data, 0, 12, chunk_bytes=len(data))
    for at in range(len(data)):
        # A batch's own checksum leaves out its first 21 bytes.
        flipped = data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :]
        with pytest.raises(ArchiveCorrupt):
            trailer.check_chunk(0, flipped, name="test")
    with pytest.raises(ArchiveCorrupt):
        trailer.check_chunk(0, data[:-1], name="test")


def test_a_damaged_batch_is_not_archived() -> None:
    data = bytearray(b"".join(batches(0, [4, 4])))
    data[-1] ^= 1
    summary = SegmentSummary(Offset(0), name="test")
    with pytest.raises(ArchiveCorrupt, match="offset 4 fails its checksum"):
        summary.feed(bytes(data))


def test_bytes_that_end_within_a_batch_are_not_archived() -> None:
    data = b"".join(batches(0, [4, 4]))
    for missing in (1, 30, 70):
        summary = SegmentSummary(Offset(0), name="test")
        summary.feed(data[:-missing])
        with pytest.raises(ArchiveCorrupt, match="do not end at offset 8"):
            summary.finish(Offset(8), aborted=(), producers=b"", epochs=())


def test_batches_of_another_place_are_not_archived() -> None:
    summary = SegmentSummary(Offset(0), name="test")
    summary.feed(batches(0, [4])[0])
    with pytest.raises(ArchiveCorrupt, match="follows offset 4"):
        summary.feed(batches(2, [4])[0])


def test_a_footer_has_the_size_that_is_drawn() -> None:
    assert FOOTER_BYTES == 60
