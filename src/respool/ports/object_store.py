"""The operations on an object store that the archive needs: a bucket, a folder, HDFS.

Keys are relative to the archive's address, with '/' between their parts. An object appears whole under its key or not
at all. Every method may raise `ArchiveUnavailable`, which says nothing about whether a write took place.
"""

from collections.abc import AsyncIterator, Sequence
from enum import Enum
from typing import NamedTuple, Protocol


class Creation(Enum):
    """What became of a create-only write."""

    CREATED = "created"
    # An object has this key. It may be this very write, whose answer was lost: look.
    EXISTS = "exists"
    # It may have been written, or may still be: look.
    UNKNOWN = "unknown"


class ObjectInfo(NamedTuple):
    key: str
    size: int
    # By the store's clock.
    modified_ms: int


class ObjectStore(Protocol):
    @property
    def address(self) -> str:
        """The archive's address, without credentials."""
        ...

    async def write(self, key: str, parts: AsyncIterator[bytes | memoryview]) -> None:
        """Write an object of any size, part by part. No one else writes this key."""
        ...

    async def create(self, key: str, content: bytes) -> Creation:
        """Write a small object, unless one has this key. An unknown outcome is a value, not an exception."""
        ...

    async def read(self, key: str, begin: int = 0, end: int | None = None) -> bytes | memoryview:
        """Return bytes [begin, end) of an object; fewer only where it is shorter.

        Raises:
            ObjectMissing: there is no object with this key.
        """
        ...

    async def list(self, prefix: str, *, after: str = "", limit: int = 1_000) -> list[ObjectInfo]:
        """The objects whose keys begin with `prefix`, in the order of their keys, from the first one after `after`.

        Fewer than `limit` mean that there are no more.
        """
        ...

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete these objects; missing ones are ignored."""
        ...

    async def close(self) -> None: ...


async def list_all(store: ObjectStore, prefix: str, *, after: str = "") -> list[ObjectInfo]:
    """As `list`, in as many pages as needed."""
    page_size = 1_000
    found: list[ObjectInfo] = []
    while True:
        page = await store.list(prefix, after=after, limit=page_size)
        found += page
        if len(page) < page_size:
            return found
        after = page[-1].key
