"""One process per data folder: a lock on `<data>/.lock` that ends with the process, however it ends."""

import fcntl
import os
from typing import Self

from respool.drivers.local_files import FILE_MODE, failure
from respool.drivers.read_ahead import Descriptor
from respool.model.errors import DataFolderInUse, DiskFailed

LOCK_NAME = ".lock"


class FolderLock:
    """Holds the data folder from its making until `release`, or until the process is gone.

    Raises:
        DataFolderInUse: another process holds it; the message names that process.
    """

    def __init__(self, folder: str) -> None:
        path = os.path.join(folder, LOCK_NAME)
        try:
            os.makedirs(folder, exist_ok=True)
            # Never deleted: a second process could lock the old file while a third makes a new one.
            descriptor = Descriptor(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE))
            fcntl.flock(descriptor.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor.fd, 0)
            os.pwrite(descriptor.fd, f"{os.getpid()}\n".encode(), 0)
        except BlockingIOError:
            raise DataFolderInUse(f"{folder} is in use by {_holder(descriptor.fd)}") from None
        except PermissionError as error:
            raise DiskFailed(
                f"{folder} cannot be written: {error.strerror}; give another folder (--data), or the right to write "
                "there to whoever runs this"
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
            # Not only closed: a process that was forked off meanwhile has the same lock in hand.
            fcntl.flock(self._descriptor.fd, fcntl.LOCK_UN)
        self._descriptor = None


def _holder(fd: int) -> str:
    pid = os.pread(fd, 32, 0).decode(errors="replace").strip()
    return f"process {pid}" if pid.isdecimal() else "another process"
