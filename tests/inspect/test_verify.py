import struct
from pathlib import Path

import pytest

from cli.log_builder import TIME, Segment, batch, three_batches
from respool.inspect.segment_check import REMEDY_DATA, REMEDY_INDEX, Finding
from respool.inspect.verify import verify_paths
from respool.log.producers.producer_snapshot import encode_entries
from respool.model.ids import LeaderEpoch, Offset
from respool.records.batch import stamp
from respool.records.build import NewRecord, build_batch
from respool.records.markers import EndTransactionMarker, build_marker

RECOVERY_POINTS = "recovery-point-offset-checkpoint"


def findings_in(path: Path) -> list[Finding]:
    return verify_paths([path]).findings


def the_finding_in(path: Path) -> Finding:
    [finding] = findings_in(path)
    return finding


@pytest.fixture
def segment(tmp_path: Path) -> Segment:
    """Three batches of two records each, offsets 0 to 5."""
    segment = Segment(tmp_path / "rides-0")
    segment.write(three_batches())
    return segment


def test_a_sound_log_has_no_findings_and_everything_is_counted(
    tmp_path: Path, segment: Segment
) -> None:
    Segment(tmp_path / "rides-0", 6).write(three_batches(6), room=4080)
    Segment(tmp_path / "rides-1").write([batch(0)])
    (tmp_path / "rides-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n3 4\n")
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\nrides 0 12\n")
    (tmp_path / "rides-0" / "00000000000000000006.snapshot").write_bytes(encode_entries([]))
    report = verify_paths([tmp_path])
    assert report.findings == []
    assert (report.partitions, report.segments, report.batches, report.records) == (2, 3, 7, 14)
    assert report.bytes == sum(each.stat().st_size for each in tmp_path.rglob("*.log"))


def test_a_flipped_bit_in_the_data_is_damage_at_that_batch(segment: Segment) -> None:
    position = len(batch(0))
    segment.flip_bit(position + 70)
    finding = the_finding_in(segment.log.parent)
    assert (finding.path, finding.position) == (segment.log, position)
    assert "the batch at offset 2 fails its checksum" in finding.what
    assert finding.remedy == REMEDY_DATA
    assert finding.is_damage


@pytest.mark.parametrize("position", range(61))
def test_no_flipped_bit_in_a_header_goes_unnoticed(tmp_path: Path, position: int) -> None:
    folder = tmp_path / "rides-0"
    segment = Segment(folder)
    segment.write(three_batches())
    Segment(folder, 6).write(three_batches(6))
    start = len(batch(0))
    segment.flip_bit(start + position)
    damage = verify_paths([folder]).damage
    # The leader epoch is the leader's to write; a higher one shows only by the lower one after it.
    assert damage
    assert damage[0].path in {segment.log, segment.index, segment.timeindex}


def test_offsets_that_go_back_are_damage(segment: Segment) -> None:
    segment.write([batch(0), batch(2), batch(3)])
    segment.index.unlink()
    segment.timeindex.unlink()
    finding = the_finding_in(segment.log)
    assert "begins at offset 3, after 3" in finding.what


def test_a_gap_between_offsets_is_no_damage(segment: Segment) -> None:
    segment.write([batch(0), batch(50, timestamp=TIME + 10)])
    assert findings_in(segment.log) == []


def test_a_segment_that_begins_before_its_name_or_its_predecessor_s_end_is_damage(
    tmp_path: Path, segment: Segment
) -> None:
    later = Segment(segment.log.parent, 6)
    later.write([batch(4), batch(6, timestamp=TIME + 50)])
    finding = the_finding_in(segment.log.parent)
    assert finding.path == later.log
    assert "begins at offset 4, after 5" in finding.what


def test_leader_epochs_that_go_back_are_damage(segment: Segment) -> None:
    segment.write([batch(0, leader_epoch=5), batch(2, leader_epoch=4, timestamp=TIME + 10)])
    assert "leader epoch 4 comes after 5" in the_finding_in(segment.log).what


def test_a_cut_off_end_of_an_earlier_segment_is_damage(segment: Segment) -> None:
    Segment(segment.log.parent, 6).write(three_batches(6))
    segment.log.write_bytes(segment.log.read_bytes()[:-10])
    damage = verify_paths([segment.log.parent]).damage
    assert [finding.path for finding in damage] == [segment.log]
    assert "a batch announces" in damage[0].what
    # The same when only the file is named.
    assert verify_paths([segment.log]).damage == damage


def test_garbage_in_the_middle_is_damage_and_indexes_behind_it_are_not_blamed(
    segment: Segment,
) -> None:
    data = bytearray(segment.log.read_bytes())
    start = len(batch(0))
    data[start : start + 61] = b"\xee" * 61
    segment.log.write_bytes(bytes(data))
    finding = the_finding_in(segment.log.parent)
    assert (finding.path, finding.position) == (segment.log, start)
    assert "what follows it was not read" in finding.what


def test_more_records_than_offsets_are_damage(segment: Segment) -> None:
    data = bytearray(batch(0))
    data[57:61] = (9).to_bytes(4, "big")
    segment.log.write_bytes(bytes(data))
    segment.index.unlink()
    segment.timeindex.unlink()
    assert any("9 records and room for 2" in each.what for each in findings_in(segment.log))


SIZE = len(batch(0))


@pytest.mark.parametrize(
    ("entries", "what"),
    [
        ([(3, SIZE + 1)], "points at a byte where no batch begins"),
        ([(5, SIZE)], "points at the batch of offsets 2 to 3"),
        ([(1, SIZE)], "points at the batch of offsets 2 to 3"),
        ([(5, 2 * SIZE), (3, SIZE)], "does not come after (offset 5, byte"),
        ([(3, SIZE), (3, SIZE)], "does not come after"),
        ([(9, 3 * SIZE)], "points beyond the last batch"),
        ([(3, SIZE), (0, 0), (5, 2 * SIZE)], "does not come after"),
    ],
)
def test_a_wrong_offset_index_is_damage_that_can_be_deleted(
    segment: Segment, entries: list[tuple[int, int]], what: str
) -> None:
    segment.write_index(entries)
    finding = the_finding_in(segment.log.parent)
    assert finding.path == segment.index
    assert what in finding.what
    assert finding.remedy == REMEDY_INDEX


@pytest.mark.parametrize(
    ("entries", "what"),
    [
        # The second batch's largest timestamp is TIME + 11, the third's TIME + 21.
        ([(TIME + 12, 3)], "the largest time there is"),
        ([(TIME + 11, 5)], "the largest time there is"),
        ([(TIME + 21, 5), (TIME + 11, 3)], "does not come after"),
        ([(TIME + 11, 3), (TIME + 11, 5)], "does not come after"),
        ([(TIME + 99, 9)], "points beyond the last batch"),
    ],
)
def test_a_wrong_time_index_is_damage_that_can_be_deleted(
    segment: Segment, entries: list[tuple[int, int]], what: str
) -> None:
    segment.write_timeindex(entries)
    finding = the_finding_in(segment.log.parent)
    assert finding.path == segment.timeindex
    assert what in finding.what
    assert finding.remedy == REMEDY_INDEX


def test_a_time_index_must_name_the_first_batch_with_that_time(segment: Segment) -> None:
    # Two batches with the same largest timestamp: a search for it must find the first.
    segment.write([batch(0), batch(2, timestamp=TIME + 10), batch(4, timestamp=TIME + 10)])
    segment.write_timeindex([(TIME + 11, 3)])
    assert findings_in(segment.log) == []
    segment.write_timeindex([(TIME + 11, 5)])
    assert the_finding_in(segment.log).path == segment.timeindex


def test_an_offset_in_a_gap_is_named_by_no_index(segment: Segment) -> None:
    segment.write([batch(0), batch(50, timestamp=TIME + 10)])
    segment.write_timeindex([(TIME + 1, 20)])
    assert "names an offset that no batch has" in the_finding_in(segment.log).what


def test_an_index_with_half_an_entry_is_damage(segment: Segment) -> None:
    segment.index.write_bytes(segment.index.read_bytes() + b"\0\0\0")
    assert "3 bytes at the end make no whole entry" in the_finding_in(segment.log).what


def test_missing_indexes_are_no_damage(segment: Segment) -> None:
    segment.index.unlink()
    segment.timeindex.unlink()
    assert findings_in(segment.log.parent) == []


def test_an_index_alone_is_a_note(segment: Segment) -> None:
    segment.log.unlink()
    assert {(each.path, each.is_damage) for each in findings_in(segment.log.parent)} == {
        (segment.index, False),
        (segment.timeindex, False),
    }


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "version ''"),
        ("0\n3\n0 0\n", "3 lines announced, 1 found"),
        ("0\n2\n1 10\n0 20\n", "epoch 0 at 20 comes after epoch 1 at 10"),
        ("0\n2\n1 10\n2 10\n", "epoch 2 at 10 comes after epoch 1 at 10"),
        ("0\n1\none two\n", "'one' is not a number"),
    ],
)
def test_a_damaged_epoch_checkpoint_is_damage(segment: Segment, text: str, what: str) -> None:
    checkpoint = segment.log.parent / "leader-epoch-checkpoint"
    checkpoint.write_text(text)
    finding = the_finding_in(segment.log.parent)
    assert finding.path == checkpoint
    assert what in finding.what


def test_a_damaged_snapshot_is_damage(segment: Segment) -> None:
    snapshot = segment.log.parent / "00000000000000000006.snapshot"
    snapshot.write_bytes(encode_entries([])[:-1])
    assert the_finding_in(segment.log.parent).path == snapshot


@pytest.fixture
def aborted(tmp_path: Path) -> Segment:
    """Two transactions of producer 12, each with two records and the marker that aborts it."""
    segment = Segment(tmp_path / "rides-0")
    segment.write([transactional(0), marker(2), transactional(3), marker(5)])
    return segment


def transactional(base_offset: int) -> bytes:
    return build_batch(
        [NewRecord(value=b"v", timestamp_ms=TIME + base_offset)] * 2,
        base_offset=base_offset,
        leader_epoch=0,
        producer_id=12,
        producer_epoch=0,
        base_sequence=base_offset,
        is_transactional=True,
    )


def marker(offset: int, *, is_commit: bool = False) -> bytes:
    end = EndTransactionMarker(
        producer_id=12, producer_epoch=0, coordinator_epoch=0, is_commit=is_commit
    )
    built = build_marker(end, timestamp_ms=TIME + offset)
    head = stamp(built.header, base_offset=Offset(offset), leader_epoch=LeaderEpoch(0))
    return head + bytes(built.data[len(head) :])


@pytest.mark.parametrize(
    ("entries", "what"),
    [
        ([(0, 12, 0, 2, 3), (0, 12, 3, 5, 6)], ""),
        ([(0, 12, 0, 5, 6), (0, 12, 0, 2, 3)], "entry 1 ends at offset 2, after 5"),
        (
            [(0, 12, 3, 2, 3), (0, 12, 3, 5, 6)],
            "entry 0 has a transaction from offset 3 to its end at 2",
        ),
        ([(7, 12, 0, 2, 3)], "00000000000000000000.txnindex: version 7, only 0 is known"),
    ],
)
def test_a_damaged_index_of_aborted_transactions_is_damage(
    aborted: Segment, entries: list[tuple[int, ...]], what: str
) -> None:
    index = aborted.log.with_suffix(".txnindex")
    index.write_bytes(b"".join(struct.pack(">hqqqq", *entry) for entry in entries))
    found = [(each.path, each.what) for each in findings_in(aborted.log.parent)]
    assert found == ([(index, what)] if what else [])
    assert [(each.path, each.what) for each in findings_in(index)] == found


def test_an_abort_that_the_index_does_not_know_is_damage(aborted: Segment) -> None:
    index = aborted.log.with_suffix(".txnindex")
    index.write_bytes(struct.pack(">hqqqq", 0, 12, 0, 2, 3))
    finding = the_finding_in(aborted.log.parent)
    assert finding.path == index
    assert "producer 12 aborted a transaction at offset 5" in finding.what
    index.unlink()
    assert len(findings_in(aborted.log.parent)) == 2


def test_an_abort_in_the_index_without_its_marker_is_damage(tmp_path: Path) -> None:
    segment = Segment(tmp_path / "rides-0")
    segment.write([transactional(0), marker(2, is_commit=True)])
    index = segment.log.with_suffix(".txnindex")
    index.write_bytes(struct.pack(">hqqqq", 0, 12, 0, 2, 3))
    finding = the_finding_in(segment.log.parent)
    assert "aborted at offset 2, but no such marker is there" in finding.what


def test_an_abort_of_nothing_is_in_no_index(tmp_path: Path) -> None:
    segment = Segment(tmp_path / "rides-0")
    segment.write([marker(0), transactional(1), marker(3, is_commit=True), marker(4)])
    assert findings_in(segment.log.parent) == []


def test_folders_on_their_way_out_are_not_looked_at(tmp_path: Path, segment: Segment) -> None:
    Segment(tmp_path / "rides-1").write([batch(0)])
    segment.flip_bit(70)
    segment.log.parent.rename(tmp_path / f"rides-0.{'0' * 32}-delete")
    report = verify_paths([tmp_path])
    assert (report.findings, report.segments) == ([], 1)


def test_a_log_that_ends_before_its_newest_snapshot_is_damage(segment: Segment) -> None:
    snapshot = segment.log.parent / f"{7:020d}.snapshot"
    snapshot.write_bytes(encode_entries([]))
    assert the_finding_in(segment.log.parent).what == "it ends at offset 6, but 7 was on the disk"


def test_a_log_whose_rest_cannot_be_read_is_damaged_once(tmp_path: Path, segment: Segment) -> None:
    (tmp_path / RECOVERY_POINTS).write_text("0\n1\nrides 0 6\n")
    data = bytearray(segment.log.read_bytes())
    data[:61] = b"\xee" * 61
    segment.log.write_bytes(bytes(data))
    assert the_finding_in(tmp_path).path == segment.log


def test_an_end_that_was_compacted_is_not_missing(tmp_path: Path, segment: Segment) -> None:
    (tmp_path / RECOVERY_POINTS).write_text("0\n1\nrides 0 9\n")
    Segment(segment.log.parent, 9).write([])
    assert findings_in(tmp_path) == []


def test_what_was_deleted_is_not_missing(tmp_path: Path, segment: Segment) -> None:
    (tmp_path / RECOVERY_POINTS).write_text("0\n2\nrides 1 8\nrides 2 9\n")
    # All its messages, by a client.
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nrides 1 8\n")
    # Its topic, a moment ago.
    (tmp_path / f"rides-2.{'0' * 32}-delete").mkdir()
    assert findings_in(tmp_path) == []
