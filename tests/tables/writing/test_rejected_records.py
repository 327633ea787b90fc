"""Records that cannot be read: in a table of their own, once, whatever dies in between; or a stop, or a count."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from respool.tables.errors import NoTable, RecordRejected, TableConflict
from respool.tables.formats.opening import open_rejected
from respool.tables.formats.table_log import TableChange, TableLog, TableState
from respool.tables.values.decoding import first_fields, make_decoder
from respool.tables.writing.table_writer import RoundResult
from tables.making import (
    MemoryTopic,
    make_table,
    make_writer,
    offsets_of,
    open_log,
    rows_of,
    settings_of,
)

VALUES: dict[int, list[bytes | None]] = {
    0: [b'{"id":0}', b"null", b'{"id":2}', b"", b'{"id":4}', b'{"id":5}{"id":6}'],
    1: [None, b'{"id":1,"city":"Oslo"}', b"bad"],
}


@pytest.fixture(params=["delta", "iceberg"])
def topic(request: pytest.FixtureRequest, tmp_path: Path) -> MemoryTopic:
    return MemoryTopic(settings_of(tmp_path, request.param, schema="infer"), dict(VALUES))


def write(topic: MemoryTopic, log: TableLog | None = None) -> RoundResult:
    decoder = make_decoder(topic.settings_now.respool_table_schema, topic="rides")
    try:
        return make_writer(topic, log, decoder=decoder).round()
    finally:
        assert decoder is not None
        decoder.close()


def rejected(topic: MemoryTopic) -> TableLog:
    return open_rejected(topic.settings_now, "rides", partitions=2)


def test_good_rows_and_bad_ones_are_apart_and_none_is_lost(topic: MemoryTopic) -> None:
    log = make_table(topic)
    result = write(topic, log)
    assert (result.rows, result.rejected) == (4, 4)
    rows = rows_of(open_log(topic))
    assert rows["id"].to_pylist() == [0, 2, 4, 1]
    assert rows["city"].to_pylist() == [None, None, None, "Oslo"]
    assert rows["_offset"].to_pylist() == [0, 2, 4, 1]
    bad = rows_of(rejected(topic))
    assert bad["_value"].to_pylist() == [b"null", b"", b'{"id":5}{"id":6}', b"bad"]
    assert bad["_reason"].to_pylist() == [
        "not a JSON object",
        "the value is empty",
        "more than one JSON document",
        "not a JSON object",
    ]
    assert offsets_of(rejected(topic)) == [(0, 1), (0, 3), (0, 5), (1, 2)]


def test_a_writer_that_dies_between_the_two_commits_rejects_nothing_twice(
    topic: MemoryTopic,
) -> None:
    log = make_table(topic)

    class Killed(BaseException):
        pass

    class DyingLog:
        def commit(self, state: TableState, change: TableChange) -> TableState:
            raise Killed

        def __getattr__(self, name: str) -> object:
            return getattr(log, name)

    with pytest.raises(Killed):
        write(topic, DyingLog())  # type: ignore[arg-type]
    # What is rejected is there, the rows are not. A new field had ended the first partition's files.
    assert offsets_of(rejected(topic)) == [(0, 1), (0, 3), (0, 5)]
    assert offsets_of(log) == []
    topic.values[1] = [*topic.values[1], b"worse"]
    write(topic)
    assert offsets_of(rejected(topic)) == [(0, 1), (0, 3), (0, 5), (1, 2), (1, 3)]
    assert len(offsets_of(open_log(topic))) == 4


def test_errors_stop_or_are_dropped_by_the_setting(topic: MemoryTopic) -> None:
    make_table(topic)
    folder = Path(topic.settings_now.respool_table_location).parent
    kind = str(topic.settings_now.respool_table)
    topic.settings_now = settings_of(folder, kind, schema="infer", errors="stop")
    with pytest.raises(
        RecordRejected, match="rides/0 at offset 1 cannot be read: not a JSON object"
    ):
        write(topic)
    assert offsets_of(open_log(topic)) == []
    topic.settings_now = settings_of(folder, kind, schema="infer", errors="drop")
    assert write(topic).rejected == 4
    assert len(offsets_of(open_log(topic))) == 4
    with pytest.raises(NoTable):
        rejected(topic).load()


def test_a_new_field_is_a_column_from_then_on_and_files_before_have_none(
    topic: MemoryTopic,
) -> None:
    topic.values = {
        0: [b'{"id":1}', b'{"id":2}', b'{"id":3}', b'{"id":4,"fare":1.5,"_key":"k","no column":1}']
    }
    log = make_table(topic)
    assert write(topic, log).files == 2
    rows = rows_of(open_log(topic))
    assert rows["fare"].to_pylist() == [None, None, None, 1.5]
    assert rows["value__key"].to_pylist() == [None, None, None, "k"]
    assert json.loads(rows["_rest"].to_pylist()[3]) == {"no column": 1}
    assert rows["_key"].to_pylist() == [b"k0", b"k1", b"k2", b"k3"]


def test_two_writers_that_find_the_same_new_field_add_it_once(topic: MemoryTopic) -> None:
    log = make_table(topic)
    other = open_log(topic)

    class RacingLog:
        def add_columns(self, state: TableState, fields: list[pa.Field]) -> None:
            if "id" not in other.load().schema.names:
                other.add_columns(other.load(), fields)
                raise TableConflict("the other one was first")
            log.add_columns(state, fields)

        def __getattr__(self, name: str) -> object:
            return getattr(log, name)

    assert write(topic, RacingLog()).rows == 4  # type: ignore[arg-type]
    assert [name for name in open_log(topic).load().schema.names if not name.startswith("_")] == [
        "id",
        "city",
    ]


def test_fields_may_stay_together_and_bytes_be_kept(topic: MemoryTopic) -> None:
    folder = Path(topic.settings_now.respool_table_location).parent
    topic.settings_now = settings_of(
        folder,
        str(topic.settings_now.respool_table),
        schema="declared:id long, city string",
        layout="struct",
        keep_raw="true",
    )
    topic.values = {0: [b'{"id":1,"city":"Oslo"}', b'{"id":2,"x":[1]}']}
    decoder = make_decoder(topic.settings_now.respool_table_schema, topic="rides")
    make_table(topic, first_fields(decoder))
    write(topic)
    rows = rows_of(open_log(topic))
    assert rows["value"].to_pylist() == [{"id": 1, "city": "Oslo"}, {"id": 2, "city": None}]
    assert rows["_value"].to_pylist() == [b'{"id":1,"city":"Oslo"}', b'{"id":2,"x":[1]}']
    assert rows["_rest"].to_pylist() == [None, '{"x":[1]}']
