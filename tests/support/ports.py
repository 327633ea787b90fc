"""Ports for servers that must be told theirs before they start, or that keep theirs over a kill and a restart.

A port that was bound, closed and handed over may be taken in between: by another test, or by a client, for Linux
gives each connection a port of a range of its own. These are below that range, and one process has each of them until
it ends: a lock on a file says so to other workers and other runs of the tests.
"""

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path

FIRST, LAST = 20_000, 32_000
FOLDER = Path(tempfile.gettempdir()) / f"respool-test-ports-{os.getuid()}"
_locks: list[int] = []
_random = random.Random()


def reserve_ports(count: int) -> list[int]:
    """Ports that nobody listens on, and that no other test is given while this process lives."""
    FOLDER.mkdir(exist_ok=True)
    reserved: list[int] = []
    while len(reserved) < count:
        port = _random.randrange(FIRST, LAST)
        if _lock(port) and _can_listen(port):
            reserved.append(port)
    return reserved


def reserve_port() -> int:
    return reserve_ports(1)[0]


def _lock(port: int) -> bool:
    """A lock of one descriptor holds against all others, also those of this process."""
    file = os.open(FOLDER / str(port), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return False
    _locks.append(file)
    return True


def _can_listen(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
