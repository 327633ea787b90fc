"""The program's entry point. Until its commands are imported, Ctrl-C ends it at once, as it ends other programs.

Python's default would show a traceback of the import in progress.
"""

import atexit
import os
import signal
import sys


def main() -> int:
    process_exit = ProcessExit()
    handler = signal.getsignal(signal.SIGINT)
    # SIGINT may be ignored on purpose, as a shell does for background jobs.
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from respool.cli.main import main as run

    signal.signal(signal.SIGINT, handler)
    process_exit.code = run()
    return process_exit.code


# These have thread pools of their own that cannot be joined, and some of the threads call Python.
NATIVE = ("confluent_kafka", "deltalake", "duckdb", "numba", "pyarrow")
# CPython's exit code if standard output could not be flushed.
FLUSH_FAILED = 120


class ProcessExit:
    """Created before anything else registers with `atexit`, so that its handler is the last to run.

    By then Python has joined all non-daemon threads and run all other handlers. Handlers registered earlier (by a
    `.pth` file, such as coverage's) would be skipped.
    """

    def __init__(self) -> None:
        # None while the command runs: a process that ends with an exception exits in Python's normal way.
        self.code: int | None = None
        atexit.register(self._leave)

    def _leave(self) -> None:
        if self.code is None or not any(name in sys.modules for name in NATIVE):
            return
        os._exit(self.code if _flush() else self.code or FLUSH_FAILED)


def _flush() -> bool:
    is_flushed = True
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            # There is no such stream, it was closed, or its reader is gone.
            is_flushed = stream is not sys.stdout and is_flushed
    return is_flushed
