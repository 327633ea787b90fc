"""The audit log in a file of its own: one JSON object per line, appended; a file that was rotated away is made again.

A line is a write into the page cache, as a log line to standard error is. A full or missing disk must not stop
requests: what cannot be written goes to the broker's log, which says why.
"""

import json
import logging
import os
from collections.abc import Mapping
from contextlib import ExitStack
from logging.handlers import WatchedFileHandler

logger = logging.getLogger(__name__)


def open_audit(path: str, stack: ExitStack) -> "AuditFile | None":
    """Open the audit log, closed with the stack; None without a path.

    Raises:
        OSError: the file cannot be opened for appending.
    """
    if not path:
        return None
    opened = AuditFile(path)
    stack.callback(opened.close)
    return opened


class AuditFile:
    def __init__(self, path: str) -> None:
        """Raises:
        OSError: the file cannot be opened for appending.
        """
        # It names who did what: readable by its owner only, if it is made here.
        os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600))
        self._file = WatchedFileHandler(path, encoding="ascii")

    def write(self, event: Mapping[str, object]) -> None:
        line = json.dumps(event)
        try:
            self._file.reopenIfNeeded()
            # Open since the start; reopened above if it was rotated.
            assert self._file.stream is not None
            self._file.stream.write(f"{line}\n")
            self._file.stream.flush()
        except OSError as error:
            logger.error("the audit log could not be written (%s): %s", error, line)

    def close(self) -> None:
        self._file.close()
