"""Identifies Spark's Python processes, and sets garbage collection and exit in them."""

import atexit
import gc
import logging
import sys
from typing import Any, Never

from respool.client.process_exit import ProcessExit

# Its child processes run tasks, one after another.
DAEMON = "pyspark.daemon"

# The numbers of loaded modules at which objects were frozen.
_frozen_at: set[int] = set()
_process_exit: ProcessExit | None = None


def runs_as(module: str) -> bool:
    """Whether this process was started as `python -m module`, or forked from one that was."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name == module


def is_spark_process() -> bool:
    """Whether Spark started this process: it exits after an error, and runs nothing else."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")


def freeze_loaded_objects() -> None:
    """Call this after a task: excludes all objects loaded so far from later garbage collections.

    Spark collects garbage after every task. With our kernels and their compiler loaded, that inspects a hundred
    thousand objects that are never freed: 40 to 60 ms per task, as long as it takes to read 200,000 messages. After the
    freeze it inspects only objects made by tasks. Existing garbage is collected first; objects in use are still freed
    when their last reference goes; only a reference cycle among the frozen objects would never be freed.
    """
    if not runs_as(DAEMON) or len(sys.modules) in _frozen_at:
        return
    _frozen_at.add(len(sys.modules))
    gc.collect()
    gc.freeze()


def skip_finalization() -> None:
    """Call this when the data source is loaded: in a process of Spark's, the interpreter is not finalized at its end.

    Those that run a stream's source or sink end like any program. The daemon's children end by `os._exit` anyway.
    """
    global _process_exit  # noqa: PLW0603
    if _process_exit is not None or not is_spark_process() or runs_as(DAEMON):
        return
    process_exit = _process_exit = ProcessExit()
    process_exit.code = 0
    # Handlers registered before ours are skipped; this was one of them.
    atexit.unregister(logging.shutdown)
    atexit.register(logging.shutdown)
    exit_with = sys.exit

    def recorded_exit(status: object = None) -> Never:
        # Python tells handlers nothing of the exit code. A message is printed, and the code is 1.
        process_exit.code = status & 0xFF if isinstance(status, int) else int(status is not None)
        exit_with(status)  # type: ignore[arg-type]

    sys.exit = recorded_exit
    previous = sys.excepthook

    def recorded_exception(*error: Any) -> None:
        # Ctrl-C ends a process by the signal.
        process_exit.code = None if issubclass(error[0], KeyboardInterrupt) else 1
        previous(*error)

    sys.excepthook = recorded_exception
