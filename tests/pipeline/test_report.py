"""Reports: what is drawn of scores, and how tables are read."""

from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake
from pyarrow.fs import PyFileSystem

from respool.pipeline.comparison_result import BINS
from respool.pipeline.report import _grid, histogram_of
from respool.pipeline.table_schemas import structure
from respool.pipeline.tables import Table


def test_a_score_that_is_no_number_is_left_out_of_the_histogram() -> None:
    found = histogram_of([0.0, None, float("nan"), 0.5, 1.0])
    assert sum(found) == 3
    assert (found[0], found[BINS // 2], found[-1]) == (1, 1, 1)


def test_numbers_are_aligned_right_and_words_left() -> None:
    drawn = _grid(
        ("city", "rides", "fares", "currency"),
        [("Köln & Bonn", 1_234, "7,909.56", "EUR"), ("Malmö", 2, "1.00", "SEK")],
    )
    assert "<td>Köln &amp; Bonn</td><td class=number>1,234</td>" in drawn
    assert "<td class=number>7,909.56</td><td>EUR</td>" in drawn
    assert "<th class=number>fares</th><th>currency</th>" in drawn
    assert "<td class=number>95.8%</td>" in _grid(("", "precision"), [("live", "95.8%")])


def test_no_thread_of_arrow_calls_python_to_read_a_table(tmp_path: Path) -> None:
    """A report that was done was aborted at exit: such a thread released a file's buffer just then."""
    rows = pa.table({"number": [1, 2], "date": ["2026-11-12", "2026-11-13"]})
    write_deltalake(str(tmp_path / "made"), rows, partition_by=["date"])
    read = Table(tmp_path / "made", lambda: structure("number bigint, date string")).arrow_dataset()
    assert not isinstance(read.filesystem, PyFileSystem)
    assert read.to_table().sort_by("number").to_pylist() == rows.to_pylist()
