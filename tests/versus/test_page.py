"""The page: every row with both figures, and where Kafka is ahead it says so."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from bench.versus.contender import KAFKA, RESPOOL, RESPOOL_SYNCED
from bench.versus.grid import grid_of
from bench.versus.page import FIGURES, markdown_table, slug, write_page
from bench.versus.plot import advantages, bars
from bench.versus.results import Results
from bench.versus.row import Row, Unit
from bench.versus.showing import number_text, ratio_text


def _results() -> Results:
    results = Results(head={"machine": "2 cores"})
    for value in (900_000.0, 1_000_000.0, 1_100_000.0):
        results.add("Produce", "100 B", Unit.MESSAGES_PER_S, RESPOOL, value)
        results.add("Produce", "100 B", Unit.MESSAGES_PER_S, KAFKA, value / 2)
        results.add("Produce", "100 B", Unit.MESSAGES_PER_S, RESPOOL_SYNCED, value / 4)
    results.add("Topics", "create <1,000>", Unit.SECONDS, RESPOOL, 3.0)
    results.add("Topics", "create <1,000>", Unit.SECONDS, KAFKA, 1.5)
    results.note("Topics", "Of one partition each.")
    results.note("Topics", "Of one partition each.")
    return results


def test_the_page_has_every_row_with_its_figures_and_ratio(tmp_path: Path) -> None:
    page = write_page(_results(), tmp_path).read_text()
    assert (
        "| 100 B | messages/s | 1.00 M (900 k to 1.10 M) | 500 k (450 k to 550 k) | 250 k (225 k to 275 k) "
        "| 2.00x | 0.50x | Respool ahead |"
    ) in page
    assert "| create <1,000> | s, less is better | 3.00 | 1.50 | 2.00x | Kafka ahead |" in page
    assert "| machine | 2 cores |" in page


def test_rows_where_kafka_is_ahead_are_named_first(tmp_path: Path) -> None:
    page = write_page(_results(), tmp_path).read_text()
    assert "Kafka is ahead in 1 of 2 rows:\n\n- Topics: create <1,000>" in page
    assert page.index("Kafka is ahead in 1") < page.index("## Produce")


def test_a_note_is_told_once(tmp_path: Path) -> None:
    assert write_page(_results(), tmp_path).read_text().count("Of one partition each.") == 1


def test_what_could_not_be_measured_is_told(tmp_path: Path) -> None:
    results = _results()
    results.note("seek", "not all was measured: the broker ended by itself")
    page = write_page(results, tmp_path).read_text()
    assert "## Not measured\n\n- seek: not all was measured: the broker ended by itself" in page


def test_a_page_made_again_from_its_figures_is_the_same(tmp_path: Path) -> None:
    first = write_page(_results(), tmp_path / "one")
    again = write_page(Results.read(tmp_path / "one" / FIGURES), tmp_path / "two")
    assert again.read_text() == first.read_text()
    assert {path.name for path in (tmp_path / "two").iterdir()} == {
        "kafka.md", "kafka.json", "kafka-overview.svg", "kafka-produce.svg", "kafka-topics.svg"
    }  # fmt: skip


def test_a_row_keeps_its_unit() -> None:
    results = _results()
    with pytest.raises(ValueError, match="s after messages/s"):
        results.add("Produce", "100 B", Unit.SECONDS, RESPOOL, 1.0)


def test_plots_are_well_formed_and_name_every_row() -> None:
    rows = list(_results())
    for text in (bars("Produce & more", rows), advantages("Times better", rows)):
        words = " ".join(ET.fromstring(text).itertext())
        assert "100 B" in words
        assert "create <1,000>" in words


def test_a_bar_beyond_the_scale_is_cut_and_tells_its_number() -> None:
    row = Row(family="F", name="n", unit=Unit.SECONDS, samples={RESPOOL: [1.0], KAFKA: [5_000.0]})
    plot = ET.fromstring(advantages("Times better", [row]))
    assert "5,000x" in " ".join(plot.itertext())
    assert all(
        float(rect.get("x", 0)) <= 1_000 for rect in plot.iter() if rect.tag.endswith("rect")
    )


def test_columns_are_for_those_who_have_a_figure() -> None:
    rows = _results().of_family("Topics")
    assert grid_of(rows).titles == ["", "unit", RESPOOL, KAFKA, "Respool / Kafka", ""]
    rows.append(Row(family="Topics", name="x", unit=Unit.SECONDS, samples={"NATS": [1.0]}))
    assert grid_of(rows).titles == ["", "unit", RESPOOL, KAFKA, "NATS", "Respool / Kafka", ""]
    assert markdown_table(grid_of(rows)).splitlines()[-1] == (
        "| x | s, less is better | - | - | 1.00 | - |  |"
    )


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1_234_567.0, Unit.MESSAGES_PER_S, "1.23 M"),
        (45_678.0, Unit.MESSAGES_PER_S, "46 k"),
        (5_432.0, Unit.MESSAGES_PER_S, "5.4 k"),
        (1_234.0, Unit.MEGABYTES, "1,234"),
        (12.34, Unit.MILLISECONDS, "12.3"),
        (0.5, Unit.SECONDS, "0.50"),
        (0.0123, Unit.SECONDS, "0.012"),
    ],
)
def test_numbers_show_the_digits_that_matter(value: float, unit: Unit, text: str) -> None:
    assert number_text(value, unit) == text


def test_ratios_are_marked_and_large_ones_rounded() -> None:
    assert [ratio_text(one) for one in (0.5, 17.4, None)] == ["0.50x", "17x", "-"]


def test_a_plots_name_is_made_of_letters() -> None:
    assert slug("Produce: broker CPU") == "produce-broker-cpu"
