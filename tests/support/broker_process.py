"""A real broker: `respool serve` as a process on its own folder, which a test may stop, kill and start again.

It has a port of its own and keeps it over restarts, so that clients find it again. What it logs is kept: a test
that did not foresee an ERROR line, a traceback or an early end fails (`check`).
"""

import os
import re
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import IO, Self

from support.forked import ForkedProcess
from support.ports import reserve_port

LISTENING = "respool listening on "
START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 60.0
_TROUBLE = re.compile(r"^\S+ (ERROR|CRITICAL) |^Traceback|Task exception was never retrieved")


class BrokerMisbehaved(AssertionError):
    """The broker did what no test asked for: it did not start, died, or logged an error."""


class BrokerProcess:
    """Use it as a context, or start and stop it by hand and then `check` it.

    `settings` are any of `respool serve --set`; what is not given is the broker's default. `flags` are others of its.
    """

    def __init__(
        self,
        data: Path,
        settings: Mapping[str, object] | None = None,
        *,
        python: str = sys.executable,
        flags: Sequence[str] = (),
    ) -> None:
        self.python = python
        self._flags = tuple(flags)
        self.data = data
        self.settings = dict(settings or {})
        self.host = "127.0.0.1"
        self.port = reserve_port()
        self._process: subprocess.Popen[str] | ForkedProcess | None = None
        self._errors_path = data.parent / f"{data.name}.stderr"
        self._foreseen: list[re.Pattern[str]] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            error.add_note(f"the broker's log:\n{self.log[-4000:]}")
            if self.is_running:
                self.kill()
            return
        if self._process is not None:
            self.stop()
        self.check()

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker was not started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def has_ended_by_itself(self) -> bool:
        """`wait_for_end` says how."""
        return self._process is not None and self._process.poll() is not None

    @property
    def log(self) -> str:
        """All it wrote to standard error, over all its lives."""
        return self._errors_path.read_text(errors="replace") if self._errors_path.exists() else ""

    # Life and death.

    def start(self) -> None:
        """Start it and return once it accepts clients."""
        self.launch()
        self.wait_until_listening()

    def launch(self) -> None:
        """Start it, without waiting for anything."""
        assert not self.is_running
        python, *arguments = self.command()
        if python == sys.executable:
            self._process = ForkedProcess(arguments)
        else:
            self._process = subprocess.Popen(
                [python, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        assert self._process.stderr is not None
        # Through a pipe: a limit on the broker's own files must not cut its log.
        self._log_keeper = Thread(
            target=_keep, args=(self._process.stderr, self._errors_path), daemon=True
        )
        self._log_keeper.start()

    def wait_until_listening(self) -> None:
        line = self._first_line()
        if not line.startswith(LISTENING):
            self.kill()
            raise BrokerMisbehaved(f"the broker did not start: {line!r}\n{self.log[-4000:]}")
        assert int(line.rpartition(":")[2]) == self.port

    def limit(self, limits: Mapping[int, int]) -> None:
        """Change soft resource limits (`resource.RLIMIT_…`) of the running broker."""
        for name, soft in limits.items():
            _, hard = resource.prlimit(self.pid, name)
            resource.prlimit(self.pid, name, (soft, hard))

    def stop(self) -> None:
        """Ask it to end, as an operator does, and insist that it ends well."""
        process = self._alive()
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerMisbehaved(
                f"no end within {STOP_SECONDS_MAX:.0f} s\n{self.log[-4000:]}"
            ) from None
        self._forget()
        if code:
            raise BrokerMisbehaved(f"ended with exit code {code}\n{self.log[-4000:]}")

    def kill(self) -> None:
        """End it without a word: `kill -9`."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._forget()

    def send_signal(self, number: int) -> None:
        self._alive().send_signal(number)

    def wait_for_end(self, seconds: float = STOP_SECONDS_MAX) -> int:
        """Wait until it has ended by itself, or by a signal sent before; return its exit code."""
        assert self._process is not None
        code = self._process.wait(seconds)
        self._forget()
        return code

    def restart(self) -> None:
        self.stop()
        self.start()

    # What it says and does.

    def foresee(self, pattern: str) -> None:
        """Trouble in the log that matches this regular expression is what the test wants to see."""
        self._foreseen.append(re.compile(pattern))

    def trouble(self) -> list[str]:
        """Lines of the log that no test foresaw."""
        return [
            line
            for line in self.log.splitlines()
            if _TROUBLE.search(line) and not any(one.search(line) for one in self._foreseen)
        ]

    def check(self) -> None:
        """Fail if it logged an error nobody foresaw."""
        trouble = self.trouble()
        if trouble:
            raise BrokerMisbehaved(f"the broker logged {trouble[0]!r}\n{self.log[-8000:]}")

    def wait_for_log(self, pattern: str, *, seconds: float = 60.0) -> str:
        """The first line of the log that matches, once there is one."""
        wanted = re.compile(pattern)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for line in self.log.splitlines():
                if wanted.search(line):
                    return line
            time.sleep(0.02)
        raise BrokerMisbehaved(f"no line with {pattern!r} in the log:\n{self.log[-4000:]}")

    def resident_bytes(self) -> int:
        """The memory it has now."""
        return self._memory("VmRSS")

    def peak_resident_bytes(self) -> int:
        """The most memory it ever had."""
        return self._memory("VmHWM")

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    # Inside.

    def _memory(self, name: str) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
        raise BrokerMisbehaved(f"process {self.pid} has no {name}")

    def command(self) -> list[str]:
        """What `start` runs; for tests that want to run it themselves."""
        return [
            self.python,
            "-c",
            "import sys; from respool.cli.main import main; sys.exit(main())",
            "serve",
            f"--data={self.data}",
            f"--listen={self.address}",
            "--log-level=info",
            *self._flags,
            *(f"--set={name}={_as_text(value)}" for name, value in self.settings.items()),
        ]

    def _first_line(self) -> str:
        process = self._alive()
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], START_SECONDS_MAX)
        return process.stdout.readline().strip() if ready else "nothing said in time"

    def _alive(self) -> "subprocess.Popen[str] | ForkedProcess":
        assert self._process is not None, "the broker was not started"
        return self._process

    def _forget(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        self._log_keeper.join()
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            pipe.close()


def _keep(lines: IO[str], path: Path) -> None:
    with path.open("a", buffering=1) as log:
        for line in lines:
            log.write(line)


def _as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
