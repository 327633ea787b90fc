"""Parses blocks of JSON lines in a child process. If the child crashes, only that block has failed."""

import fcntl
import os
import subprocess
import sys
import weakref
from contextlib import suppress
from pathlib import Path
from typing import IO

import pyarrow as pa

from respool.tables.values.json_child import ANSWER, HEADER, PARSED

_PIPE_BYTES = 1024 * 1024


class BlockFailed(Exception):
    """The block has a line that does not fit the schema, or that crashed the parser."""


class JsonParser:
    """Starts the child with the first block, and again after a crash. Not thread-safe."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._pid = 0
        self._end: weakref.finalize | None = None  # type: ignore[type-arg]
        # How many blocks crashed a child.
        self.deaths = 0

    def parse(self, schema: pa.Schema, lines: bytes) -> pa.RecordBatch:
        """
        Raises:
            BlockFailed: a line is at fault.
        """
        try:
            kind, answer = self._exchange(self._started(), schema.serialize(), lines)
        except BrokenPipeError:
            self.deaths += 1
            self.close()
            raise BlockFailed("the parser crashed") from None
        except BaseException:
            # Interrupted in the middle of a reply: the rest of it would be taken for the next one.
            self.close()
            raise
        if kind != PARSED:
            raise BlockFailed(answer.decode(errors="replace"))
        table = pa.ipc.open_stream(answer).read_all().combine_chunks()
        batches = table.to_batches()
        return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=schema)

    @staticmethod
    def _exchange(
        child: "subprocess.Popen[bytes]", schema: pa.Buffer, lines: bytes
    ) -> tuple[int, bytes]:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(HEADER.pack(schema.size, len(lines)))
        child.stdin.write(schema)
        child.stdin.write(lines)
        child.stdin.flush()
        head = child.stdout.read(ANSWER.size)
        kind, size = ANSWER.unpack(head) if len(head) == ANSWER.size else (0, 1)
        answer = child.stdout.read(size)
        if len(answer) < size:
            raise BrokenPipeError
        return kind, answer

    def _started(self) -> "subprocess.Popen[bytes]":
        if self._child is not None and self._pid == os.getpid():
            return self._child
        environment = dict(os.environ)
        # The child must find the same package, even if only this process has its path.
        here = str(Path(__file__).parents[3])
        environment["PYTHONPATH"] = os.pathsep.join(
            [here, *filter(None, [environment.get("PYTHONPATH")])]
        )
        self._child = subprocess.Popen(
            [sys.executable, "-m", "respool.tables.values.json_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        for pipe in (self._child.stdin, self._child.stdout):
            _widen(pipe)
        self._pid = os.getpid()
        self._end = weakref.finalize(self, _end, self._child, self._pid)
        return self._child

    def close(self) -> None:
        if self._end is not None:
            self._end()
        self._child = None


def _widen(pipe: "IO[bytes] | None") -> None:
    """A larger pipe, where the system supports it, means fewer context switches."""
    if pipe is not None and hasattr(fcntl, "F_SETPIPE_SZ"):
        with suppress(OSError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


def _end(child: "subprocess.Popen[bytes]", pid: int) -> None:
    if os.getpid() != pid:
        # In a fork: the child belongs to the parent.
        return
    child.kill()
    child.communicate()
