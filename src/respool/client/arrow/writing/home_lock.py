"""A lock that only the process which made it can take.

A fork has none of the threads that do the work, and its copy of a lock may be held by one of them for ever.
"""

import os
from threading import RLock

from respool.client.kafka.errors import ClientClosed


class ProcessLock:
    """As `RLock`, as a context."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._pid = os.getpid()

    @property
    def is_at_home(self) -> bool:
        return os.getpid() == self._pid

    def __enter__(self) -> None:
        """
        Raises:
            ClientClosed: this is another process, a fork.
        """
        if not self.is_at_home:
            raise ClientClosed(
                f"this was made in process {self._pid}, and a fork has none of its threads: make one of its own here"
            )
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
