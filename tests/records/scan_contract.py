"""What every `RecordScanner` must do: the tests of both, the plain one and the compiled."""

from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from records.record_examples import NOON_MS, new_records
from respool.model.ids import NO_LEADER_EPOCH, Offset
from respool.ports.record_scan import (
    KEYLESS_MAX,
    Buffer,
    KeylessRecords,
    KeyOffsets,
    RecordScanner,
    Section,
    SectionSummary,
)
from respool.records.batch import MAGIC, BatchHeader, RecordBatch, seal
from respool.records.build import NewRecord, append_record
from respool.records.record import Record, read_records

SECRET = bytes(range(16))
MIB = 1 << 20


def keyed(key: bytes | None, value: bytes | None = b"v", *, at_ms: int = NOON_MS) -> NewRecord:
    return NewRecord(key=key, value=value, timestamp_ms=at_ms)


def section_of(
    records: Sequence[NewRecord], *, base_offset: int = 0, drop_tombstones: bool = False
) -> tuple[bytes, Section]:
    """The bytes of a batch's records, and what is said of them."""
    body = bytearray()
    for delta, record in enumerate(records):
        append_record(body, record, offset_delta=delta, base_timestamp=NOON_MS)
    count = len(records)
    section = Section(0, len(body), count, base_offset, count - 1, drop_tombstones)
    return bytes(body), section


def joined(*parts: tuple[bytes, Section]) -> tuple[bytes, list[Section]]:
    """Several batches' records in one buffer, with other bytes between them."""
    data, sections = b"", []
    for body, section in parts:
        data += b"\xff" * 61
        sections.append(section._replace(begin=len(data), end=len(data) + len(body)))
        data += body
    return data, sections


def records_in(
    section_bytes: Buffer, section: Section, *, count: int, base_timestamp: int = NOON_MS
) -> list[Record]:
    """Read them as any reader would."""
    header = BatchHeader(
        Offset(section.base_offset), 0, NO_LEADER_EPOCH, MAGIC, 0, 0, section.last_offset_delta,
        base_timestamp, NOON_MS, -1, -1, -1, count,
    )  # fmt: skip
    return read_records(RecordBatch(*seal(header, section_bytes)), limit=10 * MIB)


class ScannerContract:
    scanner: RecordScanner

    def offsets(self, keys_max: int = 100) -> KeyOffsets:
        return self.scanner.key_offsets(bytes_max=MIB, keys_max=keys_max, secret=SECRET)

    # -- hashes of keys ----------------------------------------------------------------------------------------------

    def test_keys_are_hashed_by_offset(self) -> None:
        data, sections = joined(
            section_of([keyed(b"a"), keyed(None), keyed(b"b")], base_offset=10),
            section_of([keyed(b""), keyed(b"a")], base_offset=20),
        )
        hasher = self.scanner.key_hasher(secret=SECRET)
        found = hasher.hash_keys(data, sections, begin=10)
        assert list(found) == [10, 12, 20, 21]
        assert found[10] == found[21]
        assert len({found[10], found[12], found[20]}) == 3
        assert all(0 <= one < 2**64 for one in found.values())
        assert list(hasher.hash_keys(data, sections, begin=12)) == [12, 20, 21]
        # Malformed ones are skipped, and what was hashed before is forgotten.
        broken = sections[0]._replace(record_count=4, last_offset_delta=3)
        assert list(hasher.hash_keys(data, [broken, sections[1]], begin=0)) == [20, 21]
        other = self.scanner.key_hasher(secret=bytes(16))
        assert other.hash_keys(data, sections, begin=10)[10] != found[10]

    # -- keys --------------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        ("keys", "found"),
        [
            ([b"a", b"", b"b" * 1000], []),
            ([None], [0]),
            ([b"a", b"b", None, b"c", None], [2, 4]),
            ([], []),
        ],
    )
    def test_the_records_without_a_key_are_found(
        self, keys: list[bytes | None], found: list[int]
    ) -> None:
        data, section = section_of([keyed(key) for key in keys])
        assert self.find_keyless(data, section) == (len(found), found)

    def test_very_many_records_without_a_key_are_counted_and_the_first_are_listed(self) -> None:
        data, section = section_of([keyed(None)] * (KEYLESS_MAX + 5))
        found = list(range(KEYLESS_MAX))
        assert self.find_keyless(data, section) == (KEYLESS_MAX + 5, found)

    @pytest.mark.parametrize("cut", [1, 5])
    def test_bytes_that_are_no_records_are_not_taken_for_keyless_ones(self, cut: int) -> None:
        data, section = section_of([keyed(None), keyed(b"b")])
        assert self.find_keyless(data[:-cut], section) is None
        assert self.find_keyless(data + b"\0", section) is None
        more = section._replace(record_count=3, last_offset_delta=2)
        assert self.find_keyless(data, more) is None
        fewer = section._replace(last_offset_delta=0)
        assert self.find_keyless(data, fewer) is None

    def find_keyless(self, data: bytes, section: Section) -> KeylessRecords | None:
        return self.scanner.find_keyless(
            data, record_count=section.record_count, last_offset_delta=section.last_offset_delta
        )

    # -- sorting out -------------------------------------------------------------------------------------------------

    def test_only_the_newest_record_of_a_key_stays(self) -> None:
        first = section_of([keyed(b"a", b"1"), keyed(b"b", b"2"), keyed(b"a", b"3")])
        second = section_of([keyed(b"b", b"4"), keyed(b"c", b"5")], base_offset=3)
        data, sections = joined(first, second)
        offsets = self.offsets()
        assert offsets.add(data, sections, begin=0) is None

        filtered = offsets.filter_records(data, sections, end=5)

        assert [one.retained for one in filtered.summaries] == [1, 2]
        kept = records_in(filtered.retained_records(0, timestamp_shift=0), sections[0], count=1)
        assert [(one.offset, one.value) for one in kept] == [(2, b"3")]
        assert bytes(filtered.retained_records(1, timestamp_shift=0)) == second[0]

    def test_what_was_sorted_out_before_gives_way_to_newer_records_only(self) -> None:
        old, section = section_of([keyed(b"a", b"1"), keyed(b"b", b"2")])
        new, new_section = section_of([keyed(b"b", b"3")], base_offset=2)
        offsets = self.offsets()
        assert offsets.add(old, [section], begin=2) is None
        assert offsets.add(new, [new_section], begin=2) is None

        filtered = offsets.filter_records(old, [section], end=3)

        assert filtered.summaries == [SectionSummary(1, 0, 0)]
        kept = records_in(filtered.retained_records(0, timestamp_shift=0), section, count=1)
        assert kept[0].key == b"a"

    def test_records_beyond_the_end_stay_whatever_they_are(self) -> None:
        records = [keyed(b"a"), keyed(None), keyed(b"a"), keyed(None), keyed(b"a", None)]
        data, section = section_of(records, drop_tombstones=True)
        offsets = self.offsets()
        offsets.add(data, [section], begin=0)
        assert offsets.filter_records(data, [section], end=3).summaries[0].retained == 2
        assert offsets.filter_records(data, [section], end=2).summaries[0].retained == 3
        assert offsets.filter_records(data, [section], end=0).summaries[0].retained == 5

    def test_records_without_a_key_go(self) -> None:
        data, section = section_of([keyed(None), keyed(b""), keyed(None, None)])
        offsets = self.offsets()
        offsets.add(data, [section], begin=0)
        filtered = offsets.filter_records(data, [section], end=3)
        assert filtered.summaries == [SectionSummary(1, 0, 0)]
        assert (
            records_in(filtered.retained_records(0, timestamp_shift=0), section, count=1)[0].key
            == b""
        )

    def test_deletions_stay_until_they_are_to_be_dropped(self) -> None:
        data, section = section_of([keyed(b"a", b"1"), keyed(b"a", None), keyed(b"b", b"")])
        offsets = self.offsets()
        offsets.add(data, [section], begin=0)
        assert offsets.filter_records(data, [section], end=3).summaries == [SectionSummary(2, 1, 0)]
        dropping = section._replace(drop_tombstones=True)
        assert offsets.filter_records(data, [dropping], end=3).summaries == [
            SectionSummary(1, 0, 0)
        ]

    def test_the_largest_timestamp_of_those_that_stay_is_told(self) -> None:
        times = [NOON_MS, NOON_MS + 9, NOON_MS - 5, NOON_MS - 7]
        records = [keyed(b"%d" % (at % 3), at_ms=at) for at in times]
        data, section = section_of(records)
        offsets = self.offsets()
        newer, newer_section = section_of([keyed(records[1].key)], base_offset=4)
        offsets.add(data, [section], begin=0)
        offsets.add(newer, [newer_section], begin=0)
        filtered = offsets.filter_records(data, [section], end=5)
        kept = records_in(
            filtered.retained_records(0, timestamp_shift=0),
            section,
            count=filtered.summaries[0].retained,
        )
        largest = max(one.timestamp for one in kept)
        assert largest < NOON_MS, "the test wants a negative delta"
        assert filtered.summaries[0].timestamp_delta_max == largest - NOON_MS

    @pytest.mark.parametrize("horizon", [NOON_MS + 86_400_000, NOON_MS - 1, 0, 2**62])
    def test_records_keep_their_times_when_their_base_is_moved(self, horizon: int) -> None:
        records = [keyed(b"%d" % n, at_ms=NOON_MS + n * 1000 - 100) for n in range(5)]
        records.append(keyed(b"long" * 50, b"x" * 5000, at_ms=-1))
        data, section = section_of(records)
        offsets = self.offsets()
        offsets.add(data, [section], begin=0)
        filtered = offsets.filter_records(data, [section], end=6)
        moved = filtered.retained_records(0, timestamp_shift=NOON_MS - horizon)
        before = records_in(data, section, count=6)
        assert records_in(moved, section, count=6, base_timestamp=horizon) == before

    @pytest.mark.parametrize("keys_max", [1, 3, 10])
    def test_a_full_map_says_where_it_stopped_and_knows_all_before(self, keys_max: int) -> None:
        keys = [b"%d" % (number // 2) for number in range(400)]
        data, section = section_of([keyed(key) for key in keys])
        offsets = self.scanner.key_offsets(bytes_max=keys_max * 24, keys_max=100, secret=SECRET)
        full_at = offsets.add(data, [section], begin=0)
        # The first record of a key that was one too many.
        assert full_at is not None
        assert full_at % 2 == 0
        assert full_at > 0
        summary = offsets.filter_records(data, [section], end=full_at).summaries[0]
        assert summary.retained == 400 - full_at // 2

    def test_a_known_key_finds_room_in_a_full_map(self) -> None:
        offsets = self.scanner.key_offsets(bytes_max=0, keys_max=1000, secret=SECRET)
        data, section = section_of([keyed(b"%d" % number) for number in range(1000)])
        full_at = offsets.add(data, [section], begin=0)
        assert full_at is not None
        again, section = section_of([keyed(b"0"), keyed(b"new")], base_offset=full_at)
        assert offsets.add(again, [section], begin=0) == full_at + 1

    def test_sections_that_are_no_records_are_left_alone(self) -> None:
        good = section_of([keyed(b"a"), keyed(b"a")])
        bad = (b"\xff" + good[0][1:], good[1]._replace(base_offset=2))
        data, sections = joined(good, bad, (good[0], good[1]._replace(base_offset=4)))
        offsets = self.offsets()
        assert offsets.add(data, sections, begin=0) is None
        assert [
            one.retained for one in offsets.filter_records(data, sections[:2], end=4).summaries
        ] == [0, -1]
        filtered = offsets.filter_records(data, sections, end=6)
        assert [one.retained for one in filtered.summaries] == [0, -1, 1]
        # What lies before and behind it is judged as ever.
        kept = records_in(filtered.retained_records(2, timestamp_shift=0), sections[2], count=1)
        assert kept[0].offset == 5

    def test_an_empty_section_has_nothing_to_keep(self) -> None:
        offsets = self.offsets()
        section = Section(0, 0, 0, 10, 3)
        assert offsets.add(b"", [section], begin=0) is None
        filtered = offsets.filter_records(b"", [section], end=20)
        assert filtered.summaries == [SectionSummary(0, 0, 0)]
        assert bytes(filtered.retained_records(0, timestamp_shift=5)) == b""
        assert offsets.filter_records(b"", [], end=20).summaries == []

    def test_huge_keys_and_many_are_told_apart(self) -> None:
        big = b"k" * 300_000
        data, section = section_of([keyed(big), keyed(big + b"!"), keyed(big)])
        offsets = self.offsets()
        assert offsets.add(data, [section], begin=0) is None
        assert offsets.filter_records(data, [section], end=3).summaries[0].retained == 2

        many, section = section_of([keyed(b"%x" % number, b"") for number in range(20_000)])
        offsets = self.scanner.key_offsets(bytes_max=10 * MIB, keys_max=20_000, secret=SECRET)
        assert offsets.add(many, [section], begin=0) is None
        assert offsets.filter_records(many, [section], end=20_000).summaries[0].retained == 20_000

    # One contract, two scanners: that is what "differing executors" means here.
    @settings(suppress_health_check=[HealthCheck.differing_executors])
    @given(batches=st.lists(new_records, max_size=4), end=st.integers(0, 50), drop=st.booleans())
    def test_it_keeps_what_a_dictionary_would(
        self, batches: list[list[NewRecord]], end: int, drop: bool
    ) -> None:
        base, parts = 0, []
        for records in batches:
            parts.append(section_of(records, base_offset=base, drop_tombstones=drop))
            base += len(records)
        everything = [record for records in batches for record in records]
        newest = {
            one.key: offset for offset, one in enumerate(everything[:end]) if one.key is not None
        }
        stay = {
            offset
            for offset, one in enumerate(everything)
            if offset >= end or (offset in newest.values() and not (drop and one.value is None))
        }
        data, sections = joined(*parts)
        offsets = self.offsets()
        for index, section in enumerate(sections):
            if section.base_offset + section.record_count <= end:
                assert offsets.add(data, [section], begin=0) is None
            else:
                # Only a part of it is below the end: enter that part.
                body, cut = section_of(
                    batches[index][: max(0, end - section.base_offset)],
                    base_offset=section.base_offset,
                )
                assert offsets.add(body, [cut], begin=0) is None
        filtered = offsets.filter_records(data, sections, end=end)
        kept = [
            record
            for index, section in enumerate(sections)
            for record in records_in(
                filtered.retained_records(index, timestamp_shift=0),
                section,
                count=filtered.summaries[index].retained,
            )
        ]
        assert [one.offset for one in kept] == sorted(stay)
        for one in kept:
            told = everything[one.offset]
            assert (one.key, one.value, one.headers, one.timestamp) == (
                told.key, told.value, told.headers, told.timestamp_ms,
            )  # fmt: skip
