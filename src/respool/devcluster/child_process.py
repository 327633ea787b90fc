"""A child process that runs a server: it logs to a file and does not outlive its parent."""

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

POLL_S = 0.05
_PR_SET_PDEATHSIG = 1
_LAST_BYTES = 8_192


class ChildProcess:
    """The process is started by the constructor."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as file:
            self._log_start = file.tell()
            self._process = subprocess.Popen(  # noqa: S603
                list(command),
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                # Ctrl-C on the terminal is for the parent, which stops its children in order.
                start_new_session=True,
                # No other thread exists that could hold a lock during the fork.
                preexec_fn=_die_with_parent(),  # noqa: PLW1509
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def ask_to_end(self) -> None:
        if self.is_running:
            self._process.terminate()

    def kill(self) -> None:
        if self.is_running:
            self._process.kill()

    async def wait_for_end(self, seconds: float) -> bool:
        """Return True if the process ends within that time."""
        for _ in range(int(seconds / POLL_S)):
            if not self.is_running:
                return True
            await asyncio.sleep(POLL_S)
        return not self.is_running

    @property
    def how_it_ended(self) -> str:
        code = self._process.returncode
        assert code is not None, f"{self.name} is running"
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"ended with exit code {code}"

    @property
    def how_and_why_it_ended(self) -> str:
        """The exit status, with the last log line if the process failed by itself and was not killed by a signal."""
        if (self._process.returncode or 0) <= 0:
            return self.how_it_ended
        return f"{self.how_it_ended}: {self.last_words}"

    @property
    def last_words(self) -> str:
        """The last line that it logged since it was started."""
        with self.log.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(self._log_start, end - _LAST_BYTES))
            lines = file.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it wrote nothing to its log"


def _die_with_parent() -> Callable[[], None] | None:
    """Make the kernel kill the child when its parent dies, even by kill -9. Only Linux supports that."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)
    parent = os.getpid()

    def before_exec() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            # The parent died before prctl was called.
            os._exit(1)

    return before_exec
