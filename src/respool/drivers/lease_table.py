"""The leases of a single-node store: expiry times and attached keys."""

from respool.ports.clock import Clock


class LeaseTable:
    """In memory only: a lease ends with the process that granted it."""

    def __init__(self, clock: Clock, *, last: int) -> None:
        self._clock = clock
        # Numbers continue from the last one ever granted, so an old number is never reused.
        self.last = last
        self._ttl_ms: dict[int, int] = {}
        # Monotonic time: setting the wall clock expires no lease.
        self._due_at_ms: dict[int, int] = {}
        self._lease_of: dict[str, int] = {}

    def __contains__(self, lease: int) -> bool:
        return lease in self._ttl_ms

    def grant(self, lease: int, ttl_ms: int) -> None:
        assert lease not in self._ttl_ms, f"lease {lease} is granted already"
        assert ttl_ms > 0
        self.last = lease
        self._ttl_ms[lease] = ttl_ms
        self.renew(lease)

    def renew(self, lease: int) -> None:
        self._due_at_ms[lease] = self._clock.monotonic_ms() + self._ttl_ms[lease]

    def end(self, lease: int) -> None:
        assert not self.keys_of(lease), "delete its keys first"
        self._ttl_ms.pop(lease, None)
        self._due_at_ms.pop(lease, None)

    def due(self) -> list[int]:
        """The expired leases, oldest first."""
        if not self._due_at_ms:
            return []
        now_ms = self._clock.monotonic_ms()
        late = [lease for lease, due_at_ms in self._due_at_ms.items() if due_at_ms <= now_ms]
        return sorted(late, key=lambda lease: (self._due_at_ms[lease], lease))

    def next_due_in_ms(self) -> int | None:
        if not self._due_at_ms:
            return None
        return max(0, min(self._due_at_ms.values()) - self._clock.monotonic_ms())

    def attach(self, key: str, lease: int | None) -> None:
        """Attach the key to this lease, or detach it."""
        if lease is None:
            self._lease_of.pop(key, None)
        else:
            self._lease_of[key] = lease

    def keys_of(self, lease: int) -> list[str]:
        return [key for key, its_lease in self._lease_of.items() if its_lease == lease]
