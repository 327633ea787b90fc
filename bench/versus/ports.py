"""Ports for servers that need a fixed port before they start."""

import random
import socket

# Below those that Linux gives to outgoing connections: one of these stays free until its server takes it.
FIRST, LAST = 20_000, 32_000
CONNECT_SECONDS_MAX = 1.0


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens on now."""
    found: set[int] = set()
    while len(found) < count:
        port = random.randint(FIRST, LAST)
        if port not in found and _can_listen(port):
            found.add(port)
    return sorted(found)


def is_accepting(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=CONNECT_SECONDS_MAX):
            return True
    except OSError:
        return False


def _can_listen(port: int) -> bool:
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
