"""Processes that start in milliseconds: forked from one that has imported what they need (see `fork_server`).

For tests that start, stop and kill many brokers, and run many commands. That `respool` starts as it is installed is
the claim of others: `tests/cli/test_main.py`, `tests/docs/test_readme.py`.
"""

import atexit
import marshal
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from io import TextIOWrapper
from pathlib import Path
from threading import Lock
from typing import IO

from support import fork_server
from support.fork_server import WORD

# What `respool serve` imports until it listens.
OF_BROKERS = ("respool.cli.main", "respool.node.node", "uvloop", "prometheus_client")


class ForkedProcess:
    """As `subprocess.Popen`, with pipes for the text of its standard output and error."""

    def __init__(self, arguments: Sequence[str], modules: tuple[str, ...] = OF_BROKERS) -> None:
        """`arguments` are those of `python`."""
        self.returncode: int | None = None
        self._lock = Lock()
        self._link = socket.socket(socket.AF_UNIX)
        out, err = os.pipe(), os.pipe()
        nothing = os.open(os.devnull, os.O_RDONLY)
        try:
            self._link.connect(server_with(modules))
            ask(self._link, arguments, [nothing, out[1], err[1]])
        finally:
            for file in (nothing, out[1], err[1]):
                os.close(file)
        self.stdout: IO[str] = TextIOWrapper(os.fdopen(out[0], "rb"))
        self.stderr: IO[str] = TextIOWrapper(os.fdopen(err[0], "rb"))
        self.pid: int = WORD.unpack(receive(self._link))[0]

    def poll(self) -> int | None:
        with self._lock:
            if self.returncode is None and select.select([self._link], [], [], 0)[0]:
                self.returncode = os.waitstatus_to_exitcode(WORD.unpack(receive(self._link))[0])
                self._link.close()
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.poll() is None and not select.select([self._link], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("a forked process", timeout or 0)
        code = self.poll()
        assert code is not None
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@cache
def server_with(modules: tuple[str, ...]) -> str:
    """The socket of a server that has imported these; it is started once, and ends with this process."""
    folder = Path(tempfile.mkdtemp(prefix="respool-forks-"))
    server = subprocess.Popen(
        [sys.executable, fork_server.__file__, str(folder / "socket"), *modules],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert server.stdin is not None
    assert server.stdout is not None

    def end() -> None:
        server.stdin.close()  # type: ignore[union-attr]
        server.stdout.close()  # type: ignore[union-attr]
        server.wait()
        (folder / "socket").unlink()
        folder.rmdir()

    atexit.register(end)
    assert server.stdout.readline() == b"ready\n"
    return str(folder / "socket")


def ask(link: socket.socket, arguments: Sequence[str], files: Sequence[int]) -> None:
    request = marshal.dumps((list(arguments), os.getcwd(), dict(os.environb), False))
    socket.send_fds(link, [WORD.pack(len(request))], files)
    link.sendall(request)


def receive(link: socket.socket) -> bytes:
    return link.recv(WORD.size, socket.MSG_WAITALL)
