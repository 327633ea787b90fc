"""Where the program begins. Until its commands are imported, Ctrl-C ends it at once, as it ends other programs.

Python's own way would show a traceback of whatever was being imported.
"""

import atexit
import os
import signal
import sys


def main() -> int:
    process_exit = ProcessExit()
    handler = signal.getsignal(signal.SIGINT)
    # Somebody may have wished it ignored, as a shell does for what it runs in the background.
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from respool.cli.main import main as run

    signal.signal(signal.SIGINT, handler)
    process_exit.code = run()
    return process_exit.code


# They have thread pools of their own, which nobody can join, and some of these threads call Python.
NATIVE = ("confluent_kafka", "deltalake", "duckdb", "numba", "pyarrow")
# CPython's exit code where standard output could not be flushed.
FLUSH_FAILED = 120


class ProcessExit:
    """Made before anything else registers with `atexit`: its handler then is the last to run.

    At that time Python has joined all threads that are not daemons, and closed what others have registered. Handlers
    from before (of a `.pth` file, such as coverage's) would be skipped.
    """

    def __init__(self) -> None:
        # None while the command runs: a process that dies of an exception ends in Python's way.
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
            # There is none, it was closed, or nobody reads it.
            is_flushed = stream is not sys.stdout and is_flushed
    return is_flushed
