"""Ends a process that has loaded native thread pools without finalizing the interpreter.

A native thread that takes the GIL while the interpreter finalizes is ended by CPython, and C++ then aborts the process:
"terminate called without an active exception", with its work done.
"""

import atexit
import os
import sys

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
