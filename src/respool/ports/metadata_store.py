"""What the cluster agrees on: few small keys, every write guarded by revision.

The shape is etcd's, so that one node on SQLite and many on etcd are the same to the broker. A store has one revision
that grows by one with each successful transaction that changes something; a key remembers the revision that last
changed it. All changes of one transaction have its revision and are seen together.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

# Larger ones are refused; etcd's own limit is 1.5 MiB for a whole request.
KEY_BYTES_MAX = 1024
VALUE_BYTES_MAX = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredValue:
    value: bytes
    # The store's revision when this key was last written.
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All keys under a prefix, as they were together at one revision."""

    revision: int
    values: Mapping[str, StoredValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """The write happens only if the key was last changed at this revision; 0 means: there is no such key."""

    key: str
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyChanged:
    key: str
    # None: the key was deleted.
    value: bytes | None
    revision: int


class GuardFailed(Exception):
    """A guarded key has another revision; nothing was written. Read again and decide again."""


class LeaseExpired(Exception):
    """There is no such lease any more; nothing was written, and what it held is gone."""


class EntryTooLarge(Exception):
    """A key or a value is larger than the store takes; nothing was written."""


class StoreUnavailable(Exception):
    """The store did not answer. A transaction's outcome is then unknown: read before acting."""


class CompactedRevision(Exception):
    """The changes since that revision are no longer kept; read a snapshot and watch from there."""


class MetadataStore(Protocol):
    async def get(self, key: str) -> StoredValue | None:
        """What the key holds, or None when there is no such key."""
        ...

    async def snapshot(self, prefix: str) -> Snapshot: ...

    async def transact(
        self,
        *,
        guards: Sequence[Guard] = (),
        puts: Mapping[str, bytes] | None = None,
        deletes: Sequence[str] = (),
        lease: int | None = None,
    ) -> int:
        """Write all or nothing and return the revision of it; the current one when nothing had to change.

        Keys put with a `lease` vanish when it expires; put without one, they no longer hang on any.

        Raises:
            GuardFailed: a guard does not hold.
            LeaseExpired: the lease has run out.
            EntryTooLarge: a key or value is too large.
            StoreUnavailable: no answer came.
        """
        ...

    def watch(self, prefix: str, *, after_revision: int) -> AsyncIterator[KeyChanged]:
        """Yield each change under the prefix after that revision, in order, without end.

        Raises:
            CompactedRevision: changes in between are gone.
            StoreUnavailable: the watch broke; resume it after the last revision seen.
        """
        ...

    async def grant_lease(self, ttl_ms: int) -> int:
        """A new lease that expires when it is not renewed for so long."""
        ...

    async def keep_alive(self, lease: int) -> bool:
        """Renew the lease; False when it has expired already."""
        ...

    async def revoke_lease(self, lease: int) -> None:
        """End the lease now, and with it the keys that hang on it; nothing happens when it is gone."""
        ...

    async def close(self) -> None: ...
