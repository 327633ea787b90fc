"""`respool log verify`: what it prints and how it ends."""

import json
from pathlib import Path

import pytest

from cli.log_builder import Segment, batch, three_batches
from cli.running import Run
from respool.inspect.segment_check import Finding
from respool.inspect.verify import verify_paths

RECOVERY_POINTS = "recovery-point-offset-checkpoint"


def the_finding_in(path: Path) -> Finding:
    [finding] = verify_paths([path]).findings
    return finding


@pytest.fixture
def segment(tmp_path: Path) -> Segment:
    """Three batches of two records each, offsets 0 to 5."""
    segment = Segment(tmp_path / "rides-0")
    segment.write(three_batches())
    return segment


def test_a_cut_off_end_of_the_last_segment_is_a_note(run: Run, segment: Segment) -> None:
    segment.log.write_bytes(segment.log.read_bytes() + batch(6)[:40])
    finding = the_finding_in(segment.log.parent)
    assert not finding.is_damage
    ended = run("log", "verify", str(segment.log.parent))
    assert ended.code == 0
    assert "note: " in ended.out
    assert "no damage" in ended.out


def test_the_report_names_file_byte_and_remedy_and_ends_with_1(run: Run, segment: Segment) -> None:
    segment.flip_bit(70)
    ended = run("log", "verify", str(segment.log.parent.parent))
    assert ended.code == 1
    assert (
        f"damaged: {segment.log} at byte 0: the batch at offset 0 fails its checksum" in ended.out
    )
    assert "what to do: stop the broker" in ended.out
    assert "1 damaged place: 1 partition, 1 segment, 3 batches, 6 records" in ended.out


def test_the_report_is_json_for_programs(run: Run, segment: Segment) -> None:
    segment.flip_bit(70)
    ended = run("log", "verify", str(segment.log), "--json")
    assert ended.code == 1
    report = json.loads(ended.out)
    assert report["ok"] is False
    assert report["batch_count"] == 3
    [finding] = report["findings"]
    assert (finding["position"], finding["kind"], finding["is_damage"]) == (0, "batch", True)


def test_what_is_not_there_is_not_found(run: Run, tmp_path: Path) -> None:
    assert run("log", "verify", str(tmp_path / "missing")).code == 3


@pytest.mark.parametrize("is_data_folder", [True, False])
def test_a_folder_without_partitions_is_told_apart_from_a_sound_one(
    run: Run, tmp_path: Path, segment: Segment, is_data_folder: bool
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    if is_data_folder:
        (empty / "meta.properties").write_text("version=1\n")
        (empty / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    for paths in ([empty], [segment.log.parent, empty]):
        ended = run("log", "verify", *map(str, paths))
        assert ended.code == 2
        assert f"there is no partition in '{empty}'" in ended.err


def test_a_log_that_ends_before_its_recovery_point_is_damage(
    run: Run, tmp_path: Path, segment: Segment
) -> None:
    segment.write(three_batches()[:2])
    for recorded, code in ((4, 0), (5, 1)):
        (tmp_path / RECOVERY_POINTS).write_text(f"0\n1\nrides 0 {recorded}\n")
        # The whole data folder, or the partition alone.
        for path in (tmp_path, segment.log.parent):
            assert run("log", "verify", str(path)).code == code
    finding = the_finding_in(tmp_path)
    assert finding.path == segment.log.parent
    assert finding.what == "it ends at offset 4, but 5 was on the disk"
    assert f"respool log accept-loss {tmp_path} rides-0" in finding.remedy


def test_a_partition_without_folder_or_log_is_damage(
    run: Run, tmp_path: Path, segment: Segment
) -> None:
    (tmp_path / RECOVERY_POINTS).write_text("0\n4\nrides 0 6\nrides 1 8\nrides 2 9\nrides 3 0\n")
    (tmp_path / "rides-2").mkdir()
    found = [(each.path.name, each.what) for each in verify_paths([tmp_path]).damage]
    assert found == [
        ("rides-1", "the folder is missing, but offset 8 was on the disk"),
        ("rides-2", "it has no .log, but offset 9 was on the disk"),
    ]
    assert the_finding_in(tmp_path / "rides-2").what == found[1][1]
    assert "2 damaged places: 1 partition, " in run("log", "verify", str(tmp_path)).out


def test_a_file_that_belongs_to_no_log_is_refused(run: Run, tmp_path: Path) -> None:
    for name in ("notes.txt", "server.log"):
        (tmp_path / name).write_text("hello")
        assert run("log", "verify", str(tmp_path / name)).code == 2
