"""Whom to ask for a partition: its leader, until that names a replica nearer to the reader (KIP-392)."""

# Then the leader is asked again: another replica may be nearer by now.
NAMED_FOR_S = 300.0


class Nearby:
    """The replicas that leaders have named, each until it fails or is due to be named anew."""

    def __init__(self) -> None:
        self._named: dict[int, tuple[int, float]] = {}

    def on_named(self, partition: int, broker: int, now: float) -> None:
        self._named[partition] = broker, now + NAMED_FOR_S

    def of(self, partition: int, now: float) -> int | None:
        broker, until = self._named.get(partition, (None, 0.0))
        return broker if now < until else None

    def forget(self, partition: int) -> bool:
        """Go back to the leader; whether there was another to go back from."""
        return self._named.pop(partition, None) is not None
