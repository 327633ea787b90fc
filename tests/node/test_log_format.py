"""The form of log lines: the time with its offset, and JSON that a program can read line by line."""

import io
import json
import logging
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest

from respool.node.log_format import JsonFormatter, TextFormatter, set_up_logging

MOMENT_S = 1_769_843_730.123


@pytest.fixture(autouse=True)
def _zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def record(message: str, *args: object, with_error: bool = False) -> logging.LogRecord:
    error = None
    if with_error:
        try:
            divide_by_zero()
        except ZeroDivisionError:
            error = sys.exc_info()
    made = logging.LogRecord(
        "respool.node", logging.WARNING, __file__, 1, message, args, exc_info=error
    )
    made.created = MOMENT_S
    return made


def test_a_line_of_text_carries_the_offset_from_utc() -> None:
    line = TextFormatter().format(record("no etcd at %s", "::1"))
    assert line == "2026-01-31T12:45:30.123+05:30 WARNING respool.node: no etcd at ::1"
    moment = datetime.fromisoformat(line.split()[0])
    assert moment.astimezone(UTC).isoformat(timespec="seconds") == "2026-01-31T07:15:30+00:00"


def test_json_has_time_level_logger_and_message() -> None:
    assert json.loads(JsonFormatter().format(record("no etcd at %s", "::1"))) == {
        "time": "2026-01-31T12:45:30.123+05:30",
        "level": "warning",
        "logger": "respool.node",
        "message": "no etcd at ::1",
    }


def test_an_exception_stays_on_the_line_of_its_message() -> None:
    line = JsonFormatter().format(record("of a client: %s", "two\nlines \u2028", with_error=True))
    assert line.isascii()
    assert "\n" not in line
    read = json.loads(line)
    assert read["message"] == "of a client: two\nlines \u2028"
    assert read["exception"].startswith("Traceback (most recent call last):\n")
    assert read["exception"].endswith("ZeroDivisionError: division by zero")


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], io.StringIO]]:
    """Sets up logging at a level as a new process does, and returns the stream that is written to."""
    root = logging.getLogger()
    level = root.level
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)

    def set_up(level: str) -> io.StringIO:
        # pytest has added its handlers by now.
        monkeypatch.setattr(root, "handlers", [])
        stream = io.StringIO()
        set_up_logging(level=level, log_format="json", stream=stream)
        return stream

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        yield set_up
    logging.captureWarnings(capture=False)
    root.setLevel(level)


def test_only_lines_of_the_level_and_above_are_written(
    written: Callable[[str], io.StringIO],
) -> None:
    stream = written("warning")
    logging.getLogger("respool.one").info("below the level")
    logging.getLogger("respool.two").error("at the level")
    [line] = stream.getvalue().splitlines()
    assert json.loads(line)["logger"] == "respool.two"


def test_warnings_and_uncaught_exceptions_are_objects_too(
    written: Callable[[str], io.StringIO],
) -> None:
    stream = written("info")
    warnings.warn("of Python", stacklevel=1)
    thread = threading.Thread(target=divide_by_zero, name="flusher")
    thread.start()
    thread.join()
    try:
        divide_by_zero()
    except ZeroDivisionError:
        sys.excepthook(*sys.exc_info())
    warning, in_thread, at_the_end = map(json.loads, stream.getvalue().splitlines())
    assert "of Python" in warning["message"]
    assert in_thread["message"] == "uncaught exception in thread flusher"
    assert (at_the_end["level"], at_the_end["message"]) == ("critical", "uncaught exception")
    for line in (in_thread, at_the_end):
        assert line["exception"].endswith("ZeroDivisionError: division by zero")


def divide_by_zero() -> None:
    _ = 1 / 0
