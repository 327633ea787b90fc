"""A log on a simulated disk that stops, is killed or loses its power, and starts again."""

from abc import ABC, abstractmethod

from respool.log.partition_log import PartitionLog
from respool.model.ids import Offset
from respool.sim.disk.simulated_disk import SimDisk


class LogRestarts(ABC):
    """The restarts that all worlds of one log have in common."""

    disk: SimDisk
    log: PartitionLog
    # Everything below was reported as synced.
    safe_end: Offset

    @property
    @abstractmethod
    def log_end(self) -> Offset: ...

    @abstractmethod
    def open(self, *, clean: bool) -> None: ...

    @abstractmethod
    def write_checkpoint(self) -> None: ...

    @abstractmethod
    def compare_after_restart(self, *, at_least: Offset) -> None:
        """The log has everything below `at_least`, and nothing else but a beginning of the rest."""

    def stop_and_start(self) -> None:
        """A clean stop: nothing is read at the next start."""
        self.log.close()
        self.write_checkpoint()
        self.disk = self.disk.reopen()
        self.open(clean=True)
        assert self.disk.counters.reads == 0
        self.compare_after_restart(at_least=self.log_end)

    def kill_and_start(self) -> None:
        """`kill -9`: whatever was written is still in memory."""
        self.disk.kill()
        self.disk = self.disk.reopen()
        self.open(clean=False)
        self.compare_after_restart(at_least=self.log_end)

    def crash_and_start(self) -> None:
        """A power cut."""
        self.disk.crash()
        self.come_back()

    def come_back(self) -> None:
        """Open what a power cut left: at least what was synced."""
        self.disk = self.disk.reopen()
        self.open(clean=False)
        self.compare_after_restart(at_least=self.safe_end)
