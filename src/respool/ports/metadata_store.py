"""The cluster's metadata: few small keys, every write guarded by revision.

The interface follows etcd, so that a single node on SQLite and a cluster on etcd look the same to the broker. A store
has one revision, incremented by each successful transaction that changes something; a key has the revision of its last
change. All changes of one transaction have its revision and become visible together.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

# Larger values are rejected; etcd's own limit is 1.5 MiB per request.
KEY_BYTES_MAX = 1024
VALUE_BYTES_MAX = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredValue:
    value: bytes
    # The store's revision when this key was last written.
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All keys under a prefix at one revision."""

    revision: int
    values: Mapping[str, StoredValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """A condition: the key was last changed at this revision; 0: the key does not exist."""

    key: str
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyChanged:
    key: str
    # None: the key was deleted.
    value: bytes | None
    revision: int


class GuardFailed(Exception):
    """A guarded key has another revision; nothing was written. Read and decide again."""


class LeaseExpired(Exception):
    """The lease no longer exists; nothing was written, and its keys are gone."""


class EntryTooLarge(Exception):
    """A key or value exceeds the store's limit; nothing was written."""


class StoreUnavailable(Exception):
    """The store did not reply. A transaction's outcome is unknown: read before acting."""


class CompactedRevision(Exception):
    """Changes since that revision are no longer kept; read a snapshot and watch from there."""


def check_entry_size(key: str, value: bytes) -> None:
    """
    Raises:
        EntryTooLarge: no store accepts the key or the value.
    """
    key_bytes = len(key.encode())
    if not 0 < key_bytes <= KEY_BYTES_MAX:
        raise EntryTooLarge(f"key of {key_bytes} bytes, limit {KEY_BYTES_MAX}: {key[:80]!r}")
    if len(value) > VALUE_BYTES_MAX:
        raise EntryTooLarge(f"{key!r}: value of {len(value)} bytes, limit {VALUE_BYTES_MAX}")


def checked_puts(puts: Mapping[str, bytes] | None, deletes: Sequence[str]) -> dict[str, bytes]:
    """Return the puts of a transaction.

    Raises:
        EntryTooLarge: no store accepts one of them.
    """
    checked = dict(puts or {})
    assert checked.keys().isdisjoint(deletes), "a key is either put or deleted"
    for key, value in checked.items():
        check_entry_size(key, value)
    return checked


class MetadataStore(Protocol):
    async def get(self, key: str) -> StoredValue | None:
        """The key's value, or None if there is no such key."""
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
        """Write all or nothing; return the new revision, or the current one if nothing had to change.

        Keys put with a `lease` are deleted when it expires; a put without one detaches the key from its lease.

        Raises:
            GuardFailed: a guard does not hold.
            LeaseExpired: the lease has expired.
            EntryTooLarge: a key or value is too large.
            StoreUnavailable: there was no reply.
        """
        ...

    def watch(self, prefix: str, *, after_revision: int) -> AsyncIterator[KeyChanged]:
        """Yield each change under the prefix after that revision, in order, without end.

        Raises:
            CompactedRevision: changes in between are gone.
            StoreUnavailable: the watch broke; resume it after the last revision received.
        """
        ...

    async def grant_lease(self, ttl_ms: int) -> int:
        """Create a lease that expires after `ttl_ms` without renewal."""
        ...

    async def keep_alive(self, lease: int) -> bool:
        """Renew the lease; False if it has expired."""
        ...

    async def revoke_lease(self, lease: int) -> None:
        """End the lease now and delete its keys; no error if it is gone."""
        ...

    async def close(self) -> None: ...
