"""The comparison as a page of Markdown with plots beside it, and the figures as JSON: all of it written by this run."""

import re
from collections.abc import Sequence
from pathlib import Path

from bench.versus.grid import Grid, grid_of
from bench.versus.plot import advantages, bars
from bench.versus.results import Results
from bench.versus.row import Verdict

PAGE = "kafka.md"
FIGURES = "kafka.json"
OVERVIEW = "kafka-overview.svg"
LEGEND = """\
**Respool** acknowledges when the operating system has a message (`respool.flush=os`), which is Kafka's promise: like
with like. **Respool, synced** is Respool's default: acknowledged when the disk has it. Each is one broker, so acks=1
and acks=all wait for the same, and acks=0 is not acknowledged. Figures are medians of the rounds, and in brackets from
where to where they went. Rates are better when larger, everything else when smaller; a ratio is always Respool's figure
over Kafka's. The last column says who is ahead, like with like; "even" is within three percent."""


def write_page(results: Results, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    results.write(folder / FIGURES)
    by_family = [row for family in results.families for row in results.of_family(family)]
    (folder / OVERVIEW).write_text(advantages("Times better, like with like", by_family))
    parts = [_head(results), f"![Times better]({OVERVIEW})", _behind(results)]
    for family in results.families:
        rows = results.of_family(family)
        plot = f"kafka-{slug(family)}.svg"
        (folder / plot).write_text(bars(family, rows))
        notes = "\n".join(f"{note}\n" for note in results.notes.get(family, []))
        parts += [
            f"## {family}",
            notes.strip(),
            markdown_table(grid_of(rows)),
            f"![{family}]({plot})",
        ]
    left = [
        f"- {family}: {note}"
        for family, notes in results.notes.items()
        if family not in results.families
        for note in notes
    ]
    if left:
        parts += ["## Not measured", "\n".join(left)]
    path = folder / PAGE
    path.write_text("\n\n".join(part for part in parts if part) + "\n")
    return path


def markdown_table(grid: Grid) -> str:
    lines = [
        _line(grid.titles),
        _line(["---:" if is_numeric else "---" for is_numeric in grid.numeric]),
        *(_line(cells) for cells in grid.rows),
    ]
    return "\n".join(lines)


def slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _head(results: Results) -> str:
    facts = [f"| {name} | {value} |" for name, value in results.head.items()]
    table = "\n".join(["| | |", "|---|---|", *facts])
    return (
        "# Respool beside Apache Kafka\n\n"
        "Written by `make bench-kafka`; not edited by hand. [How to run and to read benchmarks](../benchmarks.md).\n\n"
        f"{table}\n\n{LEGEND}"
    )


def _behind(results: Results) -> str:
    """Said first, not to be looked for."""
    judged = [row for row in results if row.verdict is not None]
    behind = [row for row in judged if row.verdict is Verdict.KAFKA_AHEAD]
    if not behind:
        return f"Kafka is ahead in none of {len(judged)} rows."
    names = "\n".join(f"- {row.family}: {row.name}" for row in behind)
    return f"Kafka is ahead in {len(behind)} of {len(judged)} rows:\n\n{names}"
