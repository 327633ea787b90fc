"""The comparison as tables on the terminal."""

from rich.console import Console
from rich.table import Table

from bench.versus.grid import grid_of
from bench.versus.results import Results
from bench.versus.row import Verdict

WIDTH_MIN = 170
STYLES = {
    Verdict.RESPOOL_AHEAD.value: "green",
    Verdict.EVEN.value: "",
    Verdict.KAFKA_AHEAD.value: "yellow",
}


def show(results: Results, console: Console) -> None:
    for family in results.families:
        grid = grid_of(results.of_family(family))
        table = Table(title=family, title_justify="left", title_style="bold")
        for title, is_numeric in zip(grid.titles, grid.numeric, strict=True):
            table.add_column(title, justify="right" if is_numeric else "left")
        for cells in grid.rows:
            table.add_row(*cells[:-1], cells[-1], style=STYLES.get(cells[-1], ""))
        console.print()
        console.print(table)
        for note in results.notes.get(family, []):
            console.print(f"  {note}", markup=False, highlight=False)


def console_for(*, is_stderr: bool = False) -> Console:
    """Figures are wider than most terminals; a file or a pipe has no width at all."""
    console = Console(stderr=is_stderr, highlight=False)
    if console.width < WIDTH_MIN:
        console = Console(stderr=is_stderr, highlight=False, width=WIDTH_MIN)
    return console
