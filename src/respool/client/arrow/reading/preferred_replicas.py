"""Whom to ask for a partition: its leader, until that names a replica nearer to the reader (KIP-392)."""

# Then the leader is asked again: another replica may be nearer by now.
NAMED_FOR_S = 300.0
# Leaders keep naming a replica that the reader cannot use, so for this time the reader sends no rack.
AVOIDED_FOR_S = 60.0


class PreferredReplicas:
    """The replicas that leaders have named, each until it fails or is due to be named anew."""

    def __init__(self) -> None:
        self._named: dict[int, tuple[int, float]] = {}
        self._avoided_until: dict[int, float] = {}

    def on_named(self, partition: int, broker: int, now: float) -> None:
        self._named[partition] = broker, now + NAMED_FOR_S

    def of(self, partition: int, now: float) -> int | None:
        broker, until = self._named.get(partition, (None, 0.0))
        return broker if now < until else None

    def leave(self, partition: int, now: float) -> bool:
        """Go back to the leader, and stay there for a while; whether there was another to go back from."""
        if self._named.pop(partition, None) is None:
            return False
        self._avoided_until[partition] = now + AVOIDED_FOR_S
        return True

    def may_be_named(self, partition: int, now: float) -> bool:
        """Whether the leader may be told where the reader is."""
        return now >= self._avoided_until.get(partition, 0.0)
