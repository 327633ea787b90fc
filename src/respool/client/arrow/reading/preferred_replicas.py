"""Which replica to fetch a partition from: its leader, until that names a replica closer to the reader (KIP-392)."""

# After this time the leader is asked again: another replica may be closer by then.
NAMED_FOR_S = 300.0
# Leaders would keep naming a replica that the reader cannot use, so for this time the reader sends no rack.
AVOIDED_FOR_S = 60.0


class PreferredReplicas:
    """The replicas that leaders have named, each until it fails or its time is up."""

    def __init__(self) -> None:
        self._named: dict[int, tuple[int, float]] = {}
        self._avoided_until: dict[int, float] = {}

    def on_named(self, partition: int, broker: int, now: float) -> None:
        self._named[partition] = broker, now + NAMED_FOR_S

    def of(self, partition: int, now: float) -> int | None:
        broker, until = self._named.get(partition, (None, 0.0))
        return broker if now < until else None

    def leave(self, partition: int, now: float) -> bool:
        """Return to the leader for a while; returns False if the partition was already fetched from its leader."""
        if self._named.pop(partition, None) is None:
            return False
        self._avoided_until[partition] = now + AVOIDED_FOR_S
        return True

    def may_be_named(self, partition: int, now: float) -> bool:
        """Whether to send the reader's rack to the leader."""
        return now >= self._avoided_until.get(partition, 0.0)
