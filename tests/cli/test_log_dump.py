import json
import struct
from pathlib import Path

import pytest

from cli.log_builder import TIME, Segment, batch, three_batches
from cli.running import Run
from respool.log.producers.producer_snapshot import SnapshotEntry, encode_entries
from respool.model.ids import Offset
from respool.records.batch import Codec
from respool.records.markers import EndTransactionMarker, build_marker


@pytest.fixture
def segment(tmp_path: Path) -> Segment:
    segment = Segment(tmp_path)
    segment.write(three_batches())
    return segment


def test_one_line_per_batch_tells_what_its_header_says(run: Run, tmp_path: Path) -> None:
    segment = Segment(tmp_path)
    segment.write([batch(0, 3, codec=Codec.ZSTD, leader_epoch=7, producer_id=12)])
    ended = run("log", "dump", str(segment.log))
    assert ended.code == 0
    fields = ended.out.rstrip("\n").split("\t")
    size = segment.log.stat().st_size
    assert fields[:5] == ["0-2", "0", str(size), "3", "zstd"]
    assert fields[7:] == ["7", "12/0 0-2", "", "ok"]


def test_json_has_a_document_per_batch(run: Run, segment: Segment) -> None:
    ended = run("log", "dump", str(segment.log), "--json")
    first, second, third = map(json.loads, ended.out.splitlines())
    assert (first["base_offset"], first["last_offset"], third["base_offset"]) == (0, 1, 4)
    assert second["position"] == first["size"]
    assert second["max_timestamp"] == TIME + 11
    assert second["crc_ok"] is True
    assert second["producer_id"] == -1
    assert "records" not in first


@pytest.mark.parametrize(("is_commit", "word"), [(True, "commit"), (False, "abort")])
def test_the_end_of_a_transaction_is_told(
    run: Run, tmp_path: Path, is_commit: bool, word: str
) -> None:
    marker = EndTransactionMarker(
        producer_id=12, producer_epoch=3, coordinator_epoch=0, is_commit=is_commit
    )
    built = build_marker(marker, timestamp_ms=TIME)
    segment = Segment(tmp_path)
    segment.write([bytes(built.data)])
    fields = run("log", "dump", str(segment.log)).out.rstrip("\n").split("\t")
    assert fields[8:] == ["12/3", f"transactional,{word}", "ok"]
    document = json.loads(run("log", "dump", str(segment.log), "--json").out)
    assert (document["transaction_end"], document["last_sequence"]) == (word, -1)
    segment.flip_bit(75)
    assert "transactional,control\tBAD" in run("log", "dump", str(segment.log)).out


def test_aborted_transactions_are_listed(run: Run, tmp_path: Path) -> None:
    index = tmp_path / "00000000000000000000.txnindex"
    entries = [(0, 12, 4, 9, 7), (0, 13, 7, 20, 21)]
    index.write_bytes(b"".join(struct.pack(">hqqqq", *entry) for entry in entries))
    assert run("log", "dump", str(index)).out == "12\t4\t9\t7\n13\t7\t20\t21\n"
    [line] = run("log", "dump", str(index), "--from-offset", "10", "--json").out.splitlines()
    assert json.loads(line) == {
        "file": str(index),
        "producer_id": 13,
        "first_offset": 7,
        "last_offset": 20,
        "last_stable_offset": 21,
    }
    index.write_bytes(index.read_bytes()[:-1])
    cut = run("log", "dump", str(index))
    assert (cut.code, "33 bytes at the end make no whole entry" in cut.err) == (1, True)


@pytest.mark.parametrize("codec", list(Codec))
def test_records_are_shown_whatever_the_codec(run: Run, tmp_path: Path, codec: Codec) -> None:
    segment = Segment(tmp_path)
    segment.write([batch(0, codec=codec)])
    [line] = run("log", "dump", str(segment.log), "--records", "--json").out.splitlines()
    records = json.loads(line)["records"]
    assert records[1] == {
        "offset": 1,
        "timestamp": TIME + 1,
        "key": "k1",
        "value": "value 1",
        "headers": [["h", "1"]],
    }


def test_piped_lines_of_batches_and_records_are_told_apart(run: Run, segment: Segment) -> None:
    lines = run("log", "dump", str(segment.log), "--records").out.splitlines()
    assert [line.split("\t")[0] for line in lines] == ["batch", "record", "record"] * 3
    assert lines[1].split("\t")[3:] == ["k0", "value 0", "h=1"]


def test_it_begins_at_an_offset_and_ends_after_a_number_of_batches(
    run: Run, segment: Segment
) -> None:
    ended = run(
        "log", "dump", str(segment.log), "--from-offset", "3", "--limit", "1", "--records", "--json"
    )
    [line] = ended.out.splitlines()
    document = json.loads(line)
    assert document["base_offset"] == 2
    assert [record["offset"] for record in document["records"]] == [3]


def test_a_batch_with_a_wrong_checksum_is_shown_without_records_and_ends_with_1(
    run: Run, segment: Segment
) -> None:
    segment.flip_bit(80)
    ended = run("log", "dump", str(segment.log), "--records", "--json")
    assert ended.code == 1
    first, second, _ = map(json.loads, ended.out.splitlines())
    assert (first["crc_ok"], first["records"]) == (False, [])
    assert len(second["records"]) == 2


def test_what_is_no_batch_is_told_with_its_place(run: Run, segment: Segment) -> None:
    size = segment.log.stat().st_size
    segment.log.write_bytes(segment.log.read_bytes() + b"garbage" * 20)
    ended = run("log", "dump", str(segment.log))
    assert ended.code == 1
    assert len(ended.out.splitlines()) == 3
    assert f"at byte {size}: " in ended.err
    assert "respool log verify" in ended.err


def test_records_that_cannot_be_opened_are_told_and_the_rest_is_shown(
    run: Run, segment: Segment, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The header promises zstd and the checksum fits, but the bytes are something else.
    from respool.records.batch import read_header, seal

    data = batch(0)
    header = read_header(data)._replace(attributes=int(Codec.ZSTD))
    segment.write([bytes(seal(header, data[61:]).data), batch(2, timestamp=TIME + 10)])
    ended = run("log", "dump", str(segment.log), "--records")
    assert "the records cannot be read" in ended.err
    assert "value 3" in ended.out


def test_index_entries_are_shown_with_whole_offsets(run: Run, tmp_path: Path) -> None:
    segment = Segment(tmp_path, 100)
    placed = segment.write(three_batches(100), room=800)
    lines = run("log", "dump", str(segment.index)).out.splitlines()
    assert lines == [f"{each.last_offset}\t{each.position}" for each in placed[1:]]
    times = run("log", "dump", str(segment.timeindex), "--json").out.splitlines()
    assert json.loads(times[0]) == {
        "file": str(segment.timeindex),
        "timestamp": placed[1].max_timestamp,
        "offset": placed[1].last_offset,
    }
    assert (
        run("log", "dump", str(segment.index), "--from-offset", "104").out.splitlines() == lines[1:]
    )


def test_a_snapshot_is_shown(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000006.snapshot"
    entry = SnapshotEntry(
        producer_id=12,
        epoch=1,
        last_sequence=9,
        last_offset=Offset(5),
        offset_delta=4,
        timestamp=TIME,
        coordinator_epoch=-1,
        current_txn_first_offset=Offset(-1),
    )
    path.write_bytes(encode_entries([entry]))
    assert run("log", "dump", str(path)).out == f"12\t1\t9\t5\t4\t{TIME}\t-1\t-1\n"
    path.write_bytes(path.read_bytes()[:-1])
    assert run("log", "dump", str(path)).code == 1


def test_checkpoints_are_shown(run: Run, tmp_path: Path) -> None:
    epochs = tmp_path / "leader-epoch-checkpoint"
    epochs.write_text("0\n2\n0 0\n3 4\n")
    assert json.loads(run("log", "dump", str(epochs), "--json", "--limit", "1").out)["epoch"] == 0
    points = tmp_path / "recovery-point-offset-checkpoint"
    points.write_text("0\n1\n7 0 12\n")
    shown = json.loads(run("log", "dump", str(points), "--json").out)
    assert (shown["topic"], shown["partition"], shown["offset"]) == ("7", 0, 12)
    for damaged in ("0\n9\n", "0\n1\nrides 0 twelve\n"):
        points.write_text(damaged)
        assert run("log", "dump", str(points)).code == 1


@pytest.mark.parametrize(("name", "code"), [("missing.log", 3), ("server.log", 2), (".", 3)])
def test_what_is_no_log_file_is_refused_before_anything_is_printed(
    run: Run, segment: Segment, name: str, code: int
) -> None:
    folder = segment.log.parent
    (folder / "server.log").write_text("hello")
    ended = run("log", "dump", str(segment.log), str(folder / name))
    assert (ended.code, ended.out) == (code, "")
