"""Spark's Python processes: which one this is, and what one that serves many tasks does once."""

import gc
import sys

# Its children run tasks, one after another.
DAEMON = "pyspark.daemon"

# How many modules were loaded, each time that they were put out of the collector's sight.
_settled_at: set[int] = set()


def runs_as(module: str) -> bool:
    """Whether this process was started as `python -m module`, or forked from one that was."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name == module


def settle() -> None:
    """Called when a task is done: what it has loaded is not looked at again whenever garbage is collected.

    Spark collects garbage after every task. With our kernels and their compiler loaded that looks at a hundred thousand
    objects that never go: 40 to 60 ms a task, as long as it takes to read 200,000 messages. Once they are frozen it
    looks at what tasks have made. What is garbage now is collected first; what is in use is still freed by whoever
    lets go of it last, and only a cycle among objects that are here now would stay.
    """
    if not runs_as(DAEMON) or len(sys.modules) in _settled_at:
        return
    _settled_at.add(len(sys.modules))
    gc.collect()
    gc.freeze()
