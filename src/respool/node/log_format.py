"""The format of log lines: text, or one JSON object per line. Times include their offset from UTC.

2026-01-31T08:15:30.123+01:00 WARNING respool.server.listener: refused a connection from 10.0.0.7: ...
{"time": "2026-01-31T08:15:30.123+01:00", "level": "warning", "logger": "...", "message": "...", "exception": "..."}
"""

import json
import logging
import sys
import threading
from datetime import datetime
from types import TracebackType
from typing import TextIO

logger = logging.getLogger(__name__)


def set_up_logging(*, level: str, log_format: str, stream: TextIO | None = None) -> None:
    """Log to standard error, or to another stream. In JSON, this includes warnings and uncaught exceptions."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler])
    if log_format == "json":
        # Python writes these to standard error as text, but every line must be a JSON object.
        logging.captureWarnings(capture=True)
        sys.excepthook = _log_uncaught
        threading.excepthook = _log_uncaught_in_thread


class TextFormatter(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def formatTime(self, record: logging.LogRecord, _: str | None = None) -> str:  # noqa: N802
        return _local_time(record)


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": _local_time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info and record.exc_info[0] is not None:
            fields["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            fields["stack"] = self.formatStack(record.stack_info)
        # In ASCII, which suits any encoding of the stream.
        return json.dumps(fields)


def _log_uncaught(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
    else:
        logger.critical("uncaught exception", exc_info=(kind, error, trace))


def _log_uncaught_in_thread(args: threading.ExceptHookArgs) -> None:
    name = "unknown" if args.thread is None else args.thread.name
    error = args.exc_value or args.exc_type()
    logger.critical(
        "uncaught exception in thread %s", name, exc_info=(args.exc_type, error, args.exc_traceback)
    )


def _local_time(record: logging.LogRecord) -> str:
    """ISO 8601 with milliseconds and the offset from UTC."""
    return datetime.fromtimestamp(record.created).astimezone().isoformat(timespec="milliseconds")
