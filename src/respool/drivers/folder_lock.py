"""One process per data folder: a lock on `<data>/.lock`, released when the process ends, however it ends."""

import fcntl
import os
from typing import Self

from respool.drivers.local_files import DATA_FOLDER_MODE, FILE_MODE, failure
from respool.drivers.read_ahead import Descriptor
from respool.model.errors import DataFolderInUse, DiskFailed

LOCK_NAME = ".lock"


class FolderLock:
    """Locks the data folder until `release`, or until the process ends.

    Raises:
        DataFolderInUse: another process has locked it; the message names that process.
    """

    def __init__(self, folder: str) -> None:
        path = os.path.join(folder, LOCK_NAME)
        try:
            os.makedirs(folder, mode=DATA_FOLDER_MODE, exist_ok=True)
            # Never deleted: otherwise a second process could lock the old file while a third creates a new one.
            descriptor = Descriptor(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE))
            fcntl.flock(descriptor.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor.fd, 0)
            os.pwrite(descriptor.fd, f"{os.getpid()}\n".encode(), 0)
        except BlockingIOError:
            raise DataFolderInUse(f"{folder} is in use by {_holder(descriptor.fd)}") from None
        except PermissionError as error:
            raise DiskFailed(
                f"{folder} is not writable: {error.strerror}; use another folder (--data), or grant write permission "
                "to the user of this process"
            ) from error
        except OSError as error:
            raise failure("lock", path, error) from error
        self._descriptor: Descriptor | None = descriptor

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        if self._descriptor is not None:
            # Unlocked explicitly: a forked process would still hold the lock.
            fcntl.flock(self._descriptor.fd, fcntl.LOCK_UN)
        self._descriptor = None


def _holder(fd: int) -> str:
    pid = os.pread(fd, 32, 0).decode(errors="replace").strip()
    return f"process {pid}" if pid.isdecimal() else "another process"
