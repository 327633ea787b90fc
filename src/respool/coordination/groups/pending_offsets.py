"""Offsets committed in open transactions: they take effect when the transaction is committed.

For one partition, the last record written wins, whichever transaction ends first: compaction keeps that record, and a
restart must come to the same result. Hence a later commit, in another transaction or outside of any, removes earlier
pending offsets.
"""

from collections.abc import Iterator

from respool.model.ids import ProducerId


class PendingOffsets:
    def __init__(self) -> None:
        # By record key: the producers' values, in the order in which they were written.
        self._values: dict[bytes, dict[ProducerId, bytes]] = {}
        # Invariant: exactly the keys of `_values`, by producer.
        self._keys: dict[ProducerId, set[bytes]] = {}

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: bytes) -> bool:
        return key in self._values

    def keys_beginning_with(self, prefix: bytes) -> Iterator[bytes]:
        return (key for key in list(self._values) if key.startswith(prefix))

    def add(self, producer_id: ProducerId, key: bytes, value: bytes) -> None:
        values = self._values.setdefault(key, {})
        values.pop(producer_id, None)
        values[producer_id] = value
        self._keys.setdefault(producer_id, set()).add(key)

    def drop(self, key: bytes) -> None:
        """A newer record supersedes all pending offsets of this key."""
        for producer_id in self._values.pop(key, ()):
            self._forget(producer_id, key)

    def commit(self, producer_id: ProducerId) -> list[tuple[bytes, bytes]]:
        """End a transaction; return the keys and values that take effect."""
        committed = []
        for key in sorted(self._keys.get(producer_id, ())):
            values = self._values[key]
            for earlier in list(values):
                if earlier == producer_id:
                    break
                self._remove(earlier, key)
            committed.append((key, values[producer_id]))
            self._remove(producer_id, key)
        return committed

    def abort(self, producer_id: ProducerId) -> None:
        for key in list(self._keys.get(producer_id, ())):
            self._remove(producer_id, key)

    def _remove(self, producer_id: ProducerId, key: bytes) -> None:
        values = self._values[key]
        del values[producer_id]
        if not values:
            del self._values[key]
        self._forget(producer_id, key)

    def _forget(self, producer_id: ProducerId, key: bytes) -> None:
        keys = self._keys[producer_id]
        keys.discard(key)
        if not keys:
            del self._keys[producer_id]
