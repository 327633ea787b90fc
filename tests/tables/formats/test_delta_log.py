"""What Delta's own rules leave to us."""

from pathlib import Path

import pyarrow as pa
import pytest

from respool.tables.errors import NoTable, TableAltered, TableExists
from respool.tables.formats.table_log import TableChange
from tables.making import MemoryTopic, make_table, make_writer, open_log, rows_of, settings_of


def made(folder: Path) -> MemoryTopic:
    return MemoryTopic(settings_of(folder), {0: [b"a", b"b"], 1: [b"c"]})


def test_an_older_position_is_never_written(tmp_path: Path) -> None:
    """delta-rs would take it, and the rows after it would come twice."""
    topic = made(tmp_path)
    log = make_table(topic)
    make_writer(topic, log).round()
    state = log.load()
    with pytest.raises(AssertionError):
        log.commit(state, TableChange(token="t", positions={0: 1}))
    assert log.load().positions == {0: 2, 1: 1}


def test_a_folder_with_a_table_is_not_made_into_another(tmp_path: Path) -> None:
    topic = made(tmp_path)
    make_table(topic)
    with pytest.raises(TableExists, match=r"Delta table .* already"):
        make_table(topic)


def test_a_damaged_log_is_told_from_a_missing_table(tmp_path: Path) -> None:
    topic = made(tmp_path)
    make_writer(topic, make_table(topic)).round()
    log = tmp_path / "table" / "_delta_log"
    with pytest.raises(NoTable, match="version 17"):
        open_log(topic).load(17)
    (log / f"{1:020}.json").write_text("not JSON")
    with pytest.raises(TableAltered, match="cannot be read"):
        open_log(topic).load()


def test_columns_are_added_also_inside_a_struct(tmp_path: Path) -> None:
    topic = made(tmp_path)
    log = make_table(topic)
    log.add_columns(log.load(), [pa.field("at", pa.struct([pa.field("lat", pa.float64())]))])
    wider = pa.struct([pa.field("lat", pa.float64()), pa.field("lon", pa.float64())])
    log.add_columns(log.load(), [pa.field("at", wider), pa.field("city", pa.string())])
    schema = log.load().schema
    assert (schema.field("at").type, schema.field("city").type) == (wider, pa.string())
    assert rows_of(log).num_rows == 0
