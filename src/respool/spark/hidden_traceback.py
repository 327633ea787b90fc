"""Lets Spark show the sentence of our errors alone: it quotes a Python traceback before it, which tells users nothing.

Spark quotes an error of its Python processes in the form of `traceback.format_exception`; with an environment variable
(of the setting `spark.sql.execution.pyspark.udf.hideTraceback.enabled`), as class and message only. The setting would
also hide tracebacks of users' functions and of our bugs; here the variable is set when one of ours ends a process.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from respool.model.errors import RespoolError
from respool.spark.worker import is_spark_process

# Read by `pyspark.util.handle_worker_exception`, after which the process exits.
_VARIABLE = "SPARK_HIDE_TRACEBACK"

T = TypeVar("T")


@contextmanager
def hidden_traceback() -> Iterator[None]:
    """Around, or as a decorator of, what Spark calls in its Python processes."""
    try:
        yield
    except RespoolError:
        # Elsewhere, such as in a test, the process lives on, and so would the variable.
        if is_spark_process():
            os.environ[_VARIABLE] = "1"
        raise


def each_without_traceback(items: Iterable[T]) -> Iterator[T]:
    """The same for errors while an iterator is consumed."""
    with hidden_traceback():
        yield from items
