import io
import re
import sys

import pytest

from respool.cli import output
from respool.model.quantities import human_bytes


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def put_terminal(monkeypatch: pytest.MonkeyPatch, stream: str = "stdout") -> Terminal:
    """Standard output, or error, as a terminal of 100 columns without colours."""
    screen = Terminal()
    # Called from the test itself: pytest sets the streams anew after fixtures are made.
    monkeypatch.setattr(sys, stream, screen)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    return screen


COLUMNS = output.Headings("topic", "messages", numbers=["messages"])


def test_piped_rows_are_tab_separated_lines_without_a_heading(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output.print_rows(COLUMNS, [("rides", 1234567), ("a\tb", None)])
    assert capsys.readouterr().out == "rides\t1234567\na\\tb\t\n"


def test_on_a_terminal_rows_are_a_table_with_a_heading(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = put_terminal(monkeypatch)
    output.print_rows(COLUMNS, [("rides", 1234567), ("audit", None)])
    plain = re.sub(r"\x1b\[\d*m", "", terminal.getvalue())
    lines = [line.split() for line in plain.splitlines() if line.strip()]
    assert lines[0] == ["topic", "messages"]
    assert ["rides", "1,234,567"] in lines
    assert ["audit", "-"] in lines


def test_cells_are_neither_markup_nor_commands_to_the_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = put_terminal(monkeypatch)
    output.print_rows(COLUMNS, [("[bold]x[/bold]\x1b[2J", 1)])
    assert "[bold]x[/bold]\\x1b[2J" in terminal.getvalue()


def test_a_stream_of_rows_has_its_heading_once_and_lines_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = put_terminal(monkeypatch)
    stream = output.RowStream(["offset", "key"], [8, 5])
    stream.print_row((1, "a"))
    stream.print_row((22, None))
    assert terminal.getvalue() == "offset    key\n1         a\n22        -\n"


def test_a_piped_stream_of_rows_has_no_heading(capsys: pytest.CaptureFixture[str]) -> None:
    output.RowStream(["offset", "key"], [8, 5]).print_row((1, None))
    assert capsys.readouterr().out == "1\t\n"


def test_json_is_whole_and_readable(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_json({"a": "ü"})
    assert capsys.readouterr().out == '{\n  "a": "ü"\n}\n'


def test_errors_and_notes_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_error("it broke", "mend it")
    output.note("by the way")
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == "error: it broke\n  mend it\nby the way\n"


def test_without_a_terminal_there_is_no_progress(capsys: pytest.CaptureFixture[str]) -> None:
    with output.progress("checking", total=10) as bar:
        bar.advance(10)
        bar.describe("still checking")
    assert capsys.readouterr().err == ""


def test_on_a_terminal_progress_is_drawn_on_standard_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal, screen = put_terminal(monkeypatch), put_terminal(monkeypatch, "stderr")
    with output.progress("checking", total=2048) as bar:
        bar.describe("checking rides-0")
        bar.advance(2048)
    assert "checking rides-0" in screen.getvalue()
    assert terminal.getvalue() == ""


@pytest.mark.parametrize(
    ("size", "shown"), [(0, "0 B"), (1023, "1023 B"), (4096, "4.0 KiB"), (3 * 1024**4, "3.0 TiB")]
)
def test_sizes_are_shown_in_units_people_know(size: int, shown: str) -> None:
    assert human_bytes(size) == shown
