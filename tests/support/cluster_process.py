"""`respool cluster up` as a process: what it shows, who its children are, and its end."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import psutil

from support.waiting import wait_until

START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 90.0
PROGRAM = """
import os, sys
from respool.devcluster import local_cluster
from respool.cli.main import main
if fake := os.environ.get("FAKE_SERVE"):
    local_cluster.SERVE = [sys.executable, fake]
sys.exit(main())
"""


class BrokerRow(NamedTuple):
    broker: int
    address: str
    pid: int
    data: Path
    log: Path


class ClusterProcess:
    """Use it as a context: whatever happens, nothing is left of it. `serve` is a program to run in place of brokers."""

    def __init__(
        self,
        data: Path,
        *arguments: str,
        serve: Path | None = None,
        environ: Mapping[str, str] | None = None,
        python: str = sys.executable,
    ) -> None:
        self.data = data
        self._said = data.parent / f"{data.name}.stderr"
        self._shown = data.parent / f"{data.name}.stdout"
        fake = {} if serve is None else {"FAKE_SERVE": str(serve)}
        with self._said.open("w") as said, self._shown.open("w") as shown:
            self.process = subprocess.Popen(
                [python, "-c", PROGRAM, "cluster", "up", f"--data={data}", *arguments],
                env={**os.environ, **fake, **(environ or {})},
                stdout=shown,
                stderr=said,
            )
        self._family: dict[int, psutil.Process] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            logs = "\n".join(
                f"{one}:\n{one.read_text()[-3000:]}" for one in self.data.glob("*.log")
            )
            error.add_note(f"it said:\n{self.said}\n{logs}")
        if self.process.poll() is None:
            self.children()
            self.process.kill()
            self.process.wait()
        wait_until(lambda: not self.survivors(), f"its children are gone: {self.survivors()}")

    @property
    def said(self) -> str:
        return self._said.read_text()

    @property
    def bootstrap(self) -> str:
        return self._shown.read_text().splitlines()[-1].removeprefix("bootstrap.servers=")

    @property
    def address(self) -> str:
        """The first broker's."""
        return self.bootstrap.split(",")[0]

    def wait_until_up(self) -> list[BrokerRow]:
        def is_up() -> bool:
            assert self.process.poll() is None, f"it ended: {self.said}"
            return "bootstrap.servers=" in self._shown.read_text()

        wait_until(is_up, "all brokers are up", seconds=START_SECONDS_MAX)
        self.children()
        rows = [line.split("\t") for line in self._shown.read_text().splitlines()[:-1]]
        return [
            BrokerRow(int(row[0]), row[1], int(row[2]), Path(row[3]), Path(row[4])) for row in rows
        ]

    def wait_until_said(self, text: str) -> None:
        wait_until(lambda: text in self.said, f"{text!r} is said", seconds=STOP_SECONDS_MAX)

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.process.wait(STOP_SECONDS_MAX)

    def children(self) -> list[psutil.Process]:
        """Those it has now; all that it ever had are remembered."""
        found = psutil.Process(self.process.pid).children(recursive=True)
        self._family |= {one.pid: one for one in found}
        return found

    def survivors(self) -> list[str]:
        return [
            one.name() for one in self._family.values() if one.is_running() and not _is_dead(one)
        ]


def _is_dead(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
