"""A broker of its own for a measurement: started on a fresh folder, asked for its CPU and memory, then removed.

The data lies under `.bench/` in the repository, because it must be on a real disk: a temporary folder is often memory.
"""

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

ROOT = Path(__file__).resolve().parent.parent
BENCH_FOLDER = ROOT / ".bench"
LISTENING = "respool listening on "
START_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 120.0
LAST_WORDS_MAX = 2_000
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# The command line of `respool` without its launcher, so that another Python or a profiler can stand in front.
SERVE = (sys.executable, "-c", "from respool.cli.main import main; main()")


class BrokerFailed(Exception):
    """The broker did not start, or ended by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTime:
    """CPU seconds of all the broker's threads since its start."""

    total: float
    # The kernel's share; counted in clock ticks, so it is coarser than the total.
    system: float

    def __sub__(self, earlier: "CpuTime") -> "CpuTime":
        return CpuTime(total=self.total - earlier.total, system=self.system - earlier.system)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Resident bytes: all of them, and those that are not pages of mapped files such as indexes and code."""

    resident: int
    anonymous: int


class MeasuredProcess(ABC):
    """A server with a folder. Use as a context: the folder is deleted at the end, also when a measurement fails."""

    # Exit codes of a clean stop.
    stop_codes: tuple[int, ...] = (0,)

    def __init__(self) -> None:
        self.host = "127.0.0.1"
        self.port = 0
        self.start_seconds = 0.0

    def __enter__(self) -> Self:
        BENCH_FOLDER.mkdir(exist_ok=True)
        self.folder = Path(tempfile.mkdtemp(prefix="data-", dir=BENCH_FOLDER))
        self._errors_path = self.folder.with_suffix(".stderr")
        try:
            self.start()
        except BaseException:
            self._remove_files()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is not None:
                error.add_note(f"the broker's last words:\n{self.last_words()}")
            if self.is_running:
                self.kill()
        finally:
            self._remove_files()

    @abstractmethod
    def launch(self, errors: BinaryIO) -> "subprocess.Popen[str]":
        """Start it on the folder as it is; what it complains about goes to `errors`."""

    @abstractmethod
    def wait_until_up(self) -> None:
        """Return when clients are accepted.

        Raises:
            BrokerFailed: they never will be.
        """

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def start(self) -> float:
        """Start on the folder as it is, and return the seconds until clients are accepted."""
        began = time.perf_counter()
        with self._errors_path.open("ab") as errors:
            self._process = self.launch(errors)
        try:
            self.wait_until_up()
        except BaseException:
            self.kill()
            raise
        self.start_seconds = time.perf_counter() - began
        return self.start_seconds

    def send_signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def stop(self) -> float:
        """Stop cleanly, and return the seconds it took."""
        began = time.perf_counter()
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerFailed(f"no stop within {STOP_SECONDS_MAX:.0f} s") from None
        self._close_pipes()
        if code not in self.stop_codes:
            raise BrokerFailed(f"stopped with exit code {code}\n{self.last_words()}")
        return time.perf_counter() - began

    def kill(self) -> None:
        """End it as a power cut would, except that the page cache stays."""
        self._process.kill()
        self._process.wait()
        self._close_pipes()

    def cpu(self) -> CpuTime:
        # The process's own CPU clock, in nanoseconds; see clock_getcpuclockid(3).
        clock = (~self.pid << 3) | 2
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return CpuTime(total=time.clock_gettime(clock), system=int(fields[12]) / TICKS_PER_SECOND)

    def memory(self) -> Memory:
        fields = {}
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if value.endswith(" kB"):
                fields[name] = int(value.removesuffix(" kB")) * 1024
        return Memory(resident=fields["VmRSS"], anonymous=fields["RssAnon"])

    def written_bytes(self) -> int:
        """All bytes it ever wrote, to files and sockets."""
        for line in Path(f"/proc/{self.pid}/io").read_text().splitlines():
            name, _, value = line.partition(": ")
            if name == "wchar":
                return int(value)
        raise AssertionError("no wchar in /proc/<pid>/io")

    @property
    def logs_folder(self) -> Path:
        """Where partitions have their folders."""
        return self.folder

    def log_files(self) -> list[Path]:
        found: list[Path] = []
        for folder in self.logs_folder.iterdir():
            # A topic that is being deleted may be gone meanwhile.
            with suppress(FileNotFoundError, NotADirectoryError):
                found += [path for path in folder.iterdir() if path.suffix == ".log"]
        return sorted(found)

    def forget_cached(self) -> None:
        """Write the logs out and drop them from the page cache, so that the next read comes from the disk."""
        for path in self.log_files():
            try:
                descriptor = os.open(path, os.O_RDONLY)
            except FileNotFoundError:
                # A topic that was deleted a moment ago.
                continue
            try:
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)

    def last_words(self) -> str:
        """The end of what it wrote to standard error: warnings and worse."""
        if not self._errors_path.exists():
            return ""
        return self._errors_path.read_text(errors="replace")[-LAST_WORDS_MAX:]

    def _remove_files(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self._errors_path.unlink(missing_ok=True)

    def _close_pipes(self) -> None:
        if self._process.stdout is not None:
            self._process.stdout.close()


class BrokerProcess(MeasuredProcess):
    """`respool serve`."""

    def __init__(
        self, settings: Mapping[str, object] | None = None, *, command: Sequence[str] = SERVE
    ) -> None:
        super().__init__()
        self._settings = dict(settings or {})
        self._command = command

    def launch(self, errors: BinaryIO) -> "subprocess.Popen[str]":
        options = [f"--set={name}={value}" for name, value in self._settings.items()]
        return subprocess.Popen(
            [
                *self._command,
                "serve",
                f"--data={self.folder}",
                f"--listen={self.host}:0",
                "--log-level=warning",
                *options,
            ],
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=ROOT,
            env=_environment(),
            text=True,
        )

    def wait_until_up(self) -> None:
        line = self._first_line()
        if not line.startswith(LISTENING):
            raise BrokerFailed(f"the broker did not start: {line!r}\n{self.last_words()}")
        self.port = int(line.rpartition(":")[2])

    def _first_line(self) -> str:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], START_SECONDS_MAX)
        return self._process.stdout.readline().strip() if ready else "nothing said in time"


class MemoryWatch:
    """Looks at the broker's memory many times a second while the context lasts, and keeps the largest."""

    def __init__(self, broker: MeasuredProcess, *, interval_s: float = 0.02) -> None:
        self._broker = broker
        self._interval_s = interval_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.resident_peak = 0
        self.anonymous_peak = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(self._interval_s):
            memory = self._broker.memory()
            self.resident_peak = max(self.resident_peak, memory.resident)
            self.anonymous_peak = max(self.anonymous_peak, memory.anonymous)


def _environment() -> dict[str, str]:
    """Ours, but compiled modules are kept, as an installed broker has them: a start must not compile all its code."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPYCACHEPREFIX": str(BENCH_FOLDER / "pycache")}


def free_bytes() -> int:
    BENCH_FOLDER.mkdir(exist_ok=True)
    return shutil.disk_usage(BENCH_FOLDER).free
