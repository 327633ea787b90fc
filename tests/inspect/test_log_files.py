from pathlib import Path

import pytest

from cli.log_builder import Segment, batch, three_batches
from respool.inspect import log_files
from respool.inspect.log_files import (
    Broken,
    FileKind,
    FoundBatch,
    SegmentFile,
    kind_of,
    read_offset_index,
    read_time_index,
)
from respool.records.record import read_records


def read_all(path: Path, *, skip_below: int = 0) -> list[FoundBatch | Broken]:
    segment = SegmentFile(path)
    try:
        return list(segment.batches(check=True, skip_below=skip_below))
    finally:
        segment.close()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("00000000000000000000.log", FileKind.LOG),
        ("00000000000000000042.timeindex", FileKind.TIME_INDEX),
        ("00000000000000000042.index", FileKind.OFFSET_INDEX),
        ("00000000000000000042.txnindex", FileKind.TRANSACTION_INDEX),
        ("00000000000000000042.snapshot", FileKind.SNAPSHOT),
        ("leader-epoch-checkpoint", FileKind.CHECKPOINT),
        ("00000000000000000042.log.deleted", None),
        ("server.log", None),
        ("meta.properties", None),
    ],
)
def test_a_file_s_kind_is_in_its_name(name: str, kind: FileKind | None) -> None:
    assert kind_of(Path(name)) is kind


def test_batches_are_found_one_after_another(tmp_path: Path) -> None:
    segment = Segment(tmp_path)
    placed = segment.write(three_batches())
    found = read_all(segment.log)
    assert [each.position for each in found] == [each.position for each in placed]
    assert all(isinstance(each, FoundBatch) and each.crc_ok for each in found)


def test_a_checksum_is_computed_in_chunks_however_large_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_files, "CHUNK_BYTES", 64)
    segment = Segment(tmp_path)
    segment.write([batch(0, 500)])
    assert [each.crc_ok for each in read_all(segment.log) if isinstance(each, FoundBatch)] == [True]
    segment.flip_bit(segment.log.stat().st_size - 1)
    assert [each.crc_ok for each in read_all(segment.log) if isinstance(each, FoundBatch)] == [
        False
    ]


def test_batches_before_the_offset_asked_for_are_left_out(tmp_path: Path) -> None:
    segment = Segment(tmp_path)
    placed = segment.write(three_batches())
    # Offset 3 is inside the second batch.
    assert [each.position for each in read_all(segment.log, skip_below=3)] == [
        each.position for each in placed[1:]
    ]


def test_a_batch_is_read_whole_for_its_records(tmp_path: Path) -> None:
    segment = Segment(tmp_path)
    segment.write(three_batches())
    file = SegmentFile(segment.log)
    found = [each for each in file.batches(check=False) if isinstance(each, FoundBatch)]
    records = read_records(file.read_batch(found[2]), limit=1000)
    file.close()
    assert [record.value for record in records] == [b"value 4", b"value 5"]


@pytest.mark.parametrize("kept", [17, 60, 61, 100])
def test_a_file_that_ends_inside_a_batch_is_cut_off(tmp_path: Path, kept: int) -> None:
    segment = Segment(tmp_path)
    segment.log.write_bytes(batch(0) + batch(2)[:kept])
    last = read_all(segment.log)[-1]
    assert isinstance(last, Broken)
    assert last.is_truncated
    assert last.position == len(batch(0))


@pytest.mark.parametrize("zeros", [1, 61, 5000])
def test_zeros_at_the_end_count_as_cut_off(tmp_path: Path, zeros: int) -> None:
    segment = Segment(tmp_path)
    segment.log.write_bytes(batch(0) + bytes(zeros))
    last = read_all(segment.log)[-1]
    assert isinstance(last, Broken)
    assert last.is_truncated
    assert f"{zeros} zero bytes at the end" in last.what


def test_zeros_with_data_after_them_are_no_end(tmp_path: Path) -> None:
    segment = Segment(tmp_path)
    segment.log.write_bytes(batch(0) + bytes(4096) + batch(2))
    last = read_all(segment.log)[-1]
    assert isinstance(last, Broken)
    assert not last.is_truncated


@pytest.mark.parametrize(
    ("at", "value", "what"),
    [
        (16, b"\x01", "its format would be v1"),
        (8, b"\x00\x00\x00\x05", "its length would be 5"),
        (23, b"\xff\xff\xff\xff", "end -1 after its first"),
    ],
)
def test_bytes_that_cannot_be_a_header_end_the_reading(
    tmp_path: Path, at: int, value: bytes, what: str
) -> None:
    segment = Segment(tmp_path)
    data = bytearray(batch(0))
    data[at : at + len(value)] = value
    segment.log.write_bytes(bytes(data))
    [broken] = read_all(segment.log)
    assert isinstance(broken, Broken)
    assert not broken.is_truncated
    assert what in broken.what


def test_index_entries_end_where_the_zeros_at_the_end_begin(tmp_path: Path) -> None:
    segment = Segment(tmp_path, 100)
    segment.write_index([(103, 200), (105, 400)], room=80_000 * 8)
    segment.write_timeindex([(5, 103)], room=12)
    assert list(read_offset_index(segment.index)) == [(103, 200), (105, 400)]
    assert list(read_time_index(segment.timeindex)) == [(5, 103)]


def test_zeros_between_entries_are_entries(tmp_path: Path) -> None:
    segment = Segment(tmp_path, 100)
    segment.write_index([(103, 200), (100, 0), (105, 400)])
    assert list(read_offset_index(segment.index)) == [(103, 200), (100, 0), (105, 400)]


def test_an_empty_index_has_no_entries(tmp_path: Path) -> None:
    segment = Segment(tmp_path)
    segment.write_index([], room=4096)
    assert list(read_offset_index(segment.index)) == []
