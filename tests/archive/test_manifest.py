"""A manifest is its entries, folded; what contradicts it is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archive.archived_log import KEYS, cut_entry, segment_entry, start_entry
from respool.archive.manifest import Manifest
from respool.archive.manifest_entry import (
    ArchivedSegment,
    CutEntry,
    LogStartEntry,
    ManifestEntry,
    decode_entry,
    encode_entry,
    entry_fields,
)
from respool.archive.sealed_json import seal_json
from respool.model.archiving.archive_errors import ArchiveCorrupt
from respool.model.ids import LeaderEpoch, Offset


def folded(*entries: ManifestEntry) -> Manifest:
    manifest = Manifest(KEYS)
    for number, entry in enumerate(entries, start=1):
        manifest.apply(number, entry)
    return manifest


def test_segments_follow_each_other() -> None:
    manifest = folded(segment_entry(5, 10), segment_entry(10, 12))
    assert manifest.archived_end == 12
    assert manifest.find(Offset(9)) == segment_entry(5, 10)
    assert manifest.find(Offset(10)) == segment_entry(10, 12)
    assert manifest.find(Offset(4)) is None
    assert manifest.find(Offset(12)) is None
    for base in (11, 13, 5):
        with pytest.raises(ArchiveCorrupt):
            manifest.apply(3, segment_entry(base, 20))
    assert manifest.number == 2


def test_an_entry_of_a_deposed_leader_is_void() -> None:
    manifest = folded(segment_entry(0, 10, epoch=3))
    assert not manifest.apply(2, segment_entry(10, 20, epoch=2, number=9))
    assert manifest.archived_end == 10
    assert manifest.number == 2
    # Its object is needed by nobody.
    assert manifest.dropped == [segment_entry(10, 20, epoch=2, number=9).key]


def test_what_lies_before_the_log_start_is_dropped() -> None:
    manifest = folded(segment_entry(0, 10), segment_entry(10, 20, number=1), start_entry(15))
    assert manifest.log_start == 15
    # The segment that the log start cuts stays.
    assert [one.base for one in manifest.segments] == [10]
    assert manifest.dropped == [segment_entry(0, 10).key]
    manifest.apply(4, start_entry(12))
    assert manifest.log_start == 15


def test_the_archive_continues_at_a_log_start_beyond_its_end() -> None:
    manifest = folded(segment_entry(0, 10), start_entry(30))
    assert manifest.archived_end == 30
    assert not manifest.segments
    manifest.apply(3, segment_entry(30, 40))
    assert manifest.archived_end == 40


def test_a_cut_removes_what_is_of_another_history() -> None:
    manifest = folded(segment_entry(0, 10), segment_entry(10, 20, number=1), cut_entry(7, epoch=1))
    assert manifest.archived_end == 7
    assert [(one.base, one.next) for one in manifest.segments] == [(0, 7)]
    assert manifest.find(Offset(7)) is None
    manifest.apply(4, segment_entry(7, 30, epoch=1, number=2))
    found = manifest.find(Offset(7))
    assert found is not None
    assert found.next == 30


def test_a_time_is_searched_in_the_segments_that_reach_it() -> None:
    times = [10, 50, 20, 60]
    manifest = folded(
        *(
            segment_entry(at * 10, at * 10 + 10, number=at, largest_timestamp=time)
            for at, time in enumerate(times)
        )
    )
    assert [one.base for one in manifest.reaching(15)] == [10, 20, 30]
    assert [one.base for one in manifest.reaching(55)] == [30]
    assert not list(manifest.reaching(61))


def test_aborts_are_searched_in_later_segments_too() -> None:
    manifest = folded(
        segment_entry(0, 10),
        segment_entry(10, 20, number=1, aborted_from=3),
        segment_entry(20, 30, number=2, aborted_from=25),
    )
    assert [one.base for one in manifest.with_aborts(Offset(0), Offset(10))] == [10]
    assert [one.base for one in manifest.with_aborts(Offset(12), Offset(30))] == [10, 20]


@pytest.mark.parametrize(
    ("archived", "known", "expected"),
    [
        ([(0, 0), (3, 12)], [(0, 0), (3, 12)], None),
        # The log knows more: it is newer.
        ([(0, 0)], [(0, 0), (4, 20)], None),
        # An epoch of a leader that was never in this log.
        ([(0, 0), (2, 12)], [(0, 0), (4, 12)], 12),
        # The same epoch ended earlier here.
        ([(0, 0)], [(0, 0), (4, 15)], 15),
        # The log's first epochs are gone, with the records before its start.
        ([(0, 0), (3, 12)], [(3, 14)], None),
    ],
)
def test_an_unclean_election_shows_in_the_epochs(
    archived: list[tuple[int, int]], known: list[tuple[int, int]], expected: int | None
) -> None:
    manifest = folded(segment_entry(0, 20, epochs=archived))
    log_epochs = [(LeaderEpoch(epoch), Offset(start)) for epoch, start in known]
    assert manifest.diverges_at(log_epochs) == expected


entries = st.one_of(
    st.builds(
        lambda size, epoch, time: ("add", size, epoch, time),
        st.integers(1, 9),
        st.integers(0, 4),
        st.integers(-1, 50),
    ),
    st.builds(lambda at, epoch: ("start", at, epoch, 0), st.integers(0, 60), st.integers(0, 4)),
    st.builds(lambda at, epoch: ("cut", at, epoch, 0), st.integers(0, 60), st.integers(0, 4)),
)


@given(plan=st.lists(entries, max_size=25), full_at=st.integers(0, 25))
def test_folding_from_any_full_manifest_equals_folding_from_the_first_entry(
    plan: list[tuple[str, int, int, int]], full_at: int
) -> None:
    """E7; and at every step the segments are contiguous and of the archive's end."""
    manifest, from_full = Manifest(KEYS), None
    for number, (kind, value, epoch, time) in enumerate(plan, start=1):
        if number == full_at:
            from_full = Manifest.decode(manifest.encode(), KEYS, name="full")
        base = manifest.archived_end or Offset(0)
        made: ManifestEntry
        if kind == "add":
            made = segment_entry(
                base, base + value, epoch=epoch, number=number, largest_timestamp=time
            )
        else:
            made = (start_entry if kind == "start" else cut_entry)(
                value, epoch=epoch, number=number
            )
        before = manifest.leader_epoch
        was_valid = manifest.apply(number, made)
        assert was_valid == (epoch >= before)
        if from_full is not None:
            from_full.apply(number, made)
        ends = [manifest.log_start, *(one.next for one in manifest.segments)]
        for one, earlier in zip(manifest.segments[1:], manifest.segments, strict=False):
            assert one.base == earlier.next
        if manifest.segments:
            assert manifest.archived_end == ends[-1] > manifest.log_start
    if from_full is not None:
        assert from_full.encode() == manifest.encode()


@given(entry=st.sampled_from([segment_entry(3, 9, aborted_from=4), start_entry(4), cut_entry(7)]))
def test_an_entry_survives_encoding(entry: ManifestEntry) -> None:
    assert decode_entry(encode_entry(entry), KEYS, name="test") == entry


@pytest.mark.parametrize(
    "change",
    [
        {"v": 2},
        {"kind": "unknown"},
        {"base": 9, "next": 9},
        {"base": -1},
        {"next": True},
        {"size": 10},
        {"size": 1 << 60},
        {"log_bytes": 0},
        {"key": "topics/rides/other/0/seg/x.seg"},
        {"key": "../../etc/passwd"},
        {"epochs": [[1]]},
        {"epochs": 5},
        {"token": 5},
        {"broker": "one"},
    ],
)
def test_a_malformed_entry_is_refused(change: dict[str, object]) -> None:
    fields = entry_fields(segment_entry(3, 9))
    with pytest.raises(ArchiveCorrupt):
        decode_entry(seal_json({**fields, **change}), KEYS, name="test")


@given(bit=st.integers(0, 10**6))
def test_a_flipped_bit_of_an_entry_is_noticed(bit: int) -> None:
    """It may leave valid JSON, with another offset in it."""
    data = bytearray(encode_entry(segment_entry(3, 9)))
    bit %= len(data) * 8
    data[bit // 8] ^= 1 << bit % 8
    with pytest.raises(ArchiveCorrupt):
        decode_entry(bytes(data), KEYS, name="test")


@pytest.mark.parametrize("data", [b"", b"[]", b"nothing", b"[" * 100_000, b'{"v":1}', b"\xff"])
def test_what_is_no_entry_is_refused(data: bytes) -> None:
    with pytest.raises(ArchiveCorrupt):
        decode_entry(data, KEYS, name="test")
    with pytest.raises(ArchiveCorrupt):
        Manifest.decode(data, KEYS, name="test")


def test_kinds_are_told_apart() -> None:
    kinds = [type(one) for one in (segment_entry(0, 1), start_entry(0), cut_entry(0))]
    assert kinds == [ArchivedSegment, LogStartEntry, CutEntry]
