"""A family of rows as cells of text, for the terminal and for a page alike."""

from collections.abc import Sequence
from dataclasses import dataclass

from bench.versus.contender import KAFKA, RESPOOL, RESPOOL_SYNCED
from bench.versus.row import Row
from bench.versus.showing import figure_text, ratio_text, unit_text

USUAL = (RESPOOL, KAFKA, RESPOOL_SYNCED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    titles: Sequence[str]
    rows: Sequence[Sequence[str]]
    # Which columns hold numbers.
    numeric: Sequence[bool]


def grid_of(rows: Sequence[Row]) -> Grid:
    """Columns for everybody who has a figure in one of the rows."""
    present = [name for name in USUAL if any(name in row.samples for row in rows)]
    others = list(dict.fromkeys(name for row in rows for name in row.samples if name not in USUAL))
    has_synced = RESPOOL_SYNCED in present
    titles = ["", "unit", *present, *others, "Respool / Kafka"]
    titles += ["synced / Kafka"] if has_synced else []
    titles.append("")
    cells = []
    for row in rows:
        figures = [figure_text(row.figure(name), row.unit) for name in (*present, *others)]
        ratios = [ratio_text(row.ratio())]
        ratios += [ratio_text(row.ratio(RESPOOL_SYNCED))] if has_synced else []
        verdict = row.verdict.value if row.verdict else ""
        cells.append([row.name, unit_text(row.unit), *figures, *ratios, verdict])
    numeric = [2 <= at < len(titles) - 1 for at in range(len(titles))]
    return Grid(titles=titles, rows=cells, numeric=numeric)
