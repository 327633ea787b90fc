"""Blocks of a page that use Spark, run in this process with the session that tests share.

Python blocks are executed, and so is each line that is a `respool pipeline run`: by the command line's own entry point.
All other lines are run by a shell. `run_block` does the same in processes with a JVM each, and takes minutes longer.
"""

import io
import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING
from unittest.mock import patch

from docs.runnable import ADDRESS_IN_DOCS, Block, Served, run_block
from respool.cli.main import main
from support.spark import shared

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

IN_THIS_PROCESS = ("respool", "pipeline", "run")


def run_block_shared(block: Block, broker: Served, spark: "SparkSession") -> str:
    """What it prints; it must end well."""
    if block.language == "python":
        return _run_python(block.text.replace(ADDRESS_IN_DOCS, broker.address), broker, spark)
    return "".join(
        run_command(words[1:], broker, spark)
        if tuple((words := shlex.split(line))[:3]) == IN_THIS_PROCESS
        else run_block(block._replace(text=line), broker)
        for line in block.text.splitlines()
    )


def _run_python(text: str, broker: Served, spark: "SparkSession") -> str:
    with _beside(broker, spark) as (out, _):
        exec(compile(text, "a page's example", "exec"), {"__name__": "__main__"})
    return _text(out)


def run_command(words: Sequence[str], broker: Served, spark: "SparkSession") -> str:
    """What `respool WORDS` prints; it must end well."""
    with _beside(broker, spark) as (out, err):
        code = main(list(words))
    assert code == 0, f"{words}\n{_text(out)}\n{_text(err)}"
    return _text(out)


@contextmanager
def _beside(
    broker: Served, spark: "SparkSession"
) -> Iterator[tuple[io.TextIOWrapper, io.TextIOWrapper]]:
    """In the folder and with the environment and the streams of a command of its own."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with (
        chdir(broker.data.parent),
        patch.dict(os.environ, {"RESPOOL_BROKER": broker.address}),
        redirect_stdout(out),
        redirect_stderr(err),
        shared(spark, folder=broker.data.parent),
    ):
        yield out, err


def _text(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()
