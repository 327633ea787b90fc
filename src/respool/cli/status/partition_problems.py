"""Prints partitions with problems, for `respool status` and `respool cluster status`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from respool.cli import output
from respool.model.internal_topics import is_internal
from respool.model.quantities import counted

LISTED_MAX = 20
# By the name of the document's list, worst first.
PROBLEMS = {
    "offline": "no leader",
    "under_min_isr": "too few in sync for acks=all",
    "under_replicated": "not all in sync",
}
WORST_FIRST = list(PROBLEMS.values())
IN_WORDS = {
    "offline": "offline",
    "under_min_isr": "under min ISR",
    "under_replicated": "under-replicated",
}
COLUMNS = ("topic", "partition", "leader", "replicas", "in sync", "problem")

Document = Mapping[str, Any]
# What a document says about one partition beyond its replicas.
Extra = Mapping[str, Callable[[Document], object]]


def print_problems(document: Document, extra: Extra) -> None:
    """Print one tab-separated line for each partition and problem, with its kind first."""
    for problem in PROBLEMS:
        output.print_rows(
            output.Headings(),
            [
                (problem, *_partition_row(one), *(cell(one) for cell in extra.values()))
                for one in document[problem]
            ],
        )


def draw_problems(document: Document, extra: Extra) -> None:
    """Draw a table of the partitions with problems; one is listed once, under its worst problem."""
    rows = {
        (one["topic"], one["partition"]): (
            *_partition_row(one),
            PROBLEMS[problem],
            *(cell(one) for cell in extra.values()),
        )
        for problem in reversed(PROBLEMS)
        for one in document[problem]
    }
    columns = output.Headings(*COLUMNS, *extra, numbers=("partition",))
    draw_some(columns, sorted(rows.values(), key=_place))


def draw_some(columns: output.Headings, rows: Sequence[tuple[Any, ...]]) -> None:
    """Draw a table of the first rows, and the number of those left out."""
    if not rows:
        return
    output.print_rows(columns, rows[:LISTED_MAX])
    if len(rows) > LISTED_MAX:
        output.print_line(f"and {len(rows) - LISTED_MAX:,} more; --json has them all")


def in_words(document: Document) -> list[str]:
    """For example `2 partitions offline`; a problem that no partition has is left out."""
    return [
        f"{counted(len(document[name]), 'partition')} {text}"
        for name, text in (*IN_WORDS.items(), ("moving", "being moved"))
        if document[name]
    ]


def _place(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """The sort key: worst problem first, then users' topics before internal ones, because only some rows are drawn."""
    return WORST_FIRST.index(row[len(COLUMNS) - 1]), is_internal(row[0]), row[: len(COLUMNS) - 1]


def _partition_row(one: Document) -> tuple[Any, ...]:
    # As text: None would not sort beside numbers.
    leader = "" if one["leader"] is None else str(one["leader"])
    return (
        one["topic"],
        one["partition"],
        leader,
        output.comma_separated(one["replicas"]),
        output.comma_separated(one["in_sync"]),
    )
