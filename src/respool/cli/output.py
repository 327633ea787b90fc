"""Output of commands: tables for people, plain lines for pipes, JSON for programs.

Data goes to standard output; notes, progress, summaries and errors go to standard error, so that a pipe carries only
data. If standard output is a terminal, rows are drawn as a table; otherwise they are printed as tab-separated lines
without a heading, ready for cut and awk. rich is imported only when something is drawn.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import typer

from respool.cli.exit_codes import ExitCode
from respool.model.operator_errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

Row = Sequence[object]

# The maximum number of lines listed one by one.
NOTED_MAX = 10


class Headings:
    """The headings of a table; columns named in `numbers` are right-aligned."""

    def __init__(self, *names: str, numbers: Sequence[str] = ()) -> None:
        assert set(numbers) <= set(names)
        self.names = names
        self.numbers = frozenset(numbers)


def is_terminal() -> bool:
    return sys.stdout.isatty()


def is_error_terminal() -> bool:
    return sys.stderr.isatty()


def print_rows(columns: Headings, rows: Sequence[Row], *, title: str = "") -> None:
    """Print a table on a terminal, or tab-separated lines elsewhere."""
    if not is_terminal():
        for row in rows:
            print_line("\t".join(_plain(cell) for cell in row))
        return
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, title=title or None, title_justify="left", pad_edge=False)
    for name in columns.names:
        table.add_column(name, justify="right" if name in columns.numbers else "left")
    for row in rows:
        # Text, not str: a topic setting or a message key must not be interpreted as markup.
        table.add_row(*(Text(printable(_drawn(cell))) for cell in row))
    _console().print(table)


class RowStream:
    """Prints the rows of a table one at a time, for a table of unknown length; column widths are estimates."""

    def __init__(self, names: Sequence[str], widths: Sequence[int], *, indent: str = "") -> None:
        self._names = names
        self._widths = widths
        self._indent = indent
        self._drawn = is_terminal()
        self._begun = False

    def print_row(self, row: Row) -> None:
        if not self._drawn:
            print_line("\t".join(_plain(cell) for cell in row))
            return
        if not self._begun:
            print_line(self._aligned(self._names))
            self._begun = True
        print_line(self._aligned([printable("-" if cell is None else str(cell)) for cell in row]))

    def _aligned(self, cells: Sequence[str]) -> str:
        padded = [cell.ljust(width) for cell, width in zip(cells, self._widths, strict=True)]
        return self._indent + "  ".join(padded).rstrip()


def print_line(text: str) -> None:
    sys.stdout.write(text + "\n")


def print_heading(text: str) -> None:
    """Print a heading on a terminal only; lines for programs have none."""
    if is_terminal():
        from rich.text import Text

        _console().print(Text(printable(text), style="bold"))


def print_json(document: Mapping[str, object]) -> None:
    """Print one indented document, for data of known extent."""
    print_line(json.dumps(document, indent=2, ensure_ascii=False))


def json_line(document: Mapping[str, object]) -> str:
    """One document on one line, for streamed data."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def note(text: str, *, style: str = "") -> None:
    """Print a note on standard error."""
    if not sys.stderr.isatty():
        sys.stderr.write(text + "\n")
        return
    from rich.text import Text

    _console(stderr=True).print(Text(printable(text), style=style), soft_wrap=True)


def note_some(lines: Sequence[str]) -> None:
    """Note the first few lines, and the number of those left out."""
    for line in lines[:NOTED_MAX]:
        note(line)
    if len(lines) > NOTED_MAX:
        note(f"and {len(lines) - NOTED_MAX:,} more")


def drop_what_is_left() -> None:
    """Discard unflushed output: the pipe is closed, and Python's flush at exit would fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_error(message: str, hint: str = "") -> None:
    note(f"error: {message}", style="bold red")
    if hint:
        note(f"  {hint}")


def printable(text: str) -> str:
    """Escape control characters: a message must not control the reader's terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


class ProgressBar(Protocol):
    # False: nothing is displayed.
    is_shown: bool

    def advance(self, amount: int) -> None: ...

    def describe(self, text: str) -> None: ...


@contextmanager
def progress(description: str, *, total: int | None, unit: str = "bytes") -> Iterator[ProgressBar]:
    """A progress bar (a pulse if `total` is None) on standard error if it is a terminal; otherwise nothing."""
    if not sys.stderr.isatty():
        yield _NoProgress()
        return
    from rich import progress as bars

    amount = bars.DownloadColumn(binary_units=True) if unit == "bytes" else _count_column(unit)
    bar = bars.Progress(
        bars.TextColumn("{task.description}", markup=False),
        bars.BarColumn(),
        amount,
        bars.TimeElapsedColumn(),
        console=_console(stderr=True),
        transient=True,
    )
    with bar:
        yield _Bar(bar, bar.add_task(description, total=total))


def _count_column(unit: str) -> Any:
    from rich.progress import TextColumn

    return TextColumn("{task.completed:,.0f} " + unit)


class _NoProgress:
    is_shown = False

    def advance(self, amount: int) -> None:
        pass

    def describe(self, text: str) -> None:
        pass


class _Bar:
    is_shown = True

    def __init__(self, bar: Any, task: Any) -> None:
        self._bar = bar
        self._task = task

    def advance(self, amount: int) -> None:
        self._bar.advance(self._task, amount)

    def describe(self, text: str) -> None:
        self._bar.update(self._task, description=text)


def _plain(cell: object) -> str:
    # A tab or newline inside a field would break the line format.
    return printable("" if cell is None else str(cell))


def _drawn(cell: object) -> str:
    if cell is None:
        return "-"
    return f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else str(cell)


def _console(*, stderr: bool = False) -> "Console":
    from rich.console import Console

    # Created per use, so that it follows a sys.stdout that a test or caller has replaced.
    return Console(stderr=stderr, highlight=False)


def comma_separated(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


# -- questions ---------------------------------------------------------------------------------------------------------


def confirm(
    question: str,
    *,
    why: str,
    hint: str = "add --yes when you are sure",
    explain: Callable[[], None] = lambda: None,
) -> None:
    """Return if the answer is yes. `why` is the reason for the question, for the error without a terminal.

    `explain` prints details before the question; it is only called on a terminal.

    Raises:
        UsageError: there is no terminal to ask on.
        typer.Exit: the answer is no, or the input has ended.
        KeyboardInterrupt: Ctrl-C was pressed.
    """
    if not can_ask():
        raise UsageError(f"{why}, and there is no terminal to ask on", hint=hint)
    explain()
    if not _agrees(question):
        note("nothing was changed")
        raise typer.Exit(ExitCode.FAILED)


def confirm_on_terminal(question: str) -> None:
    """As `confirm`, for a change that loses nothing: without a terminal, as in a runbook's script, it goes ahead."""
    if can_ask():
        confirm(question, why="")


def _agrees(question: str) -> bool:
    try:
        return typer.confirm(question, err=True)
    except typer.Abort as end:
        # The cursor is still behind the question.
        note("")
        # typer raises Abort for both Ctrl-C and the end of the input; only its context says which.
        if isinstance(end.__context__, KeyboardInterrupt):
            note("nothing was changed")
            raise KeyboardInterrupt from None
        return False


def can_ask() -> bool:
    return sys.stdin.isatty()
