"""The metadata store of one partition: its key, the brokers' registrations, and revisions that guard writes."""

from collections.abc import Callable
from dataclasses import replace

from respool.model.cluster import BrokerEndpoint, PartitionImage
from respool.model.ids import BrokerId


class MemoryStore:
    def __init__(self, image: PartitionImage) -> None:
        self.revision = 1
        self.image = replace(image, revision=1)
        self.brokers: dict[BrokerId, BrokerEndpoint] = {}
        # Told after every change.
        self.on_change: Callable[[], None] = lambda: None

    def write(
        self, image: PartitionImage, *, registered: tuple[tuple[BrokerId, int], ...] = ()
    ) -> int | None:
        """Write if it is still at that image's revision, and say the new one; None: refused. Revision 0 is no guard."""
        if image.revision not in {0, self.image.revision}:
            return None
        if any(
            broker not in self.brokers or self.brokers[broker].epoch != epoch
            for broker, epoch in registered
        ):
            return None
        self.revision += 1
        self.image = replace(image, revision=self.revision)
        self.on_change()
        return self.revision

    def register(self, broker: BrokerId) -> int:
        self.revision += 1
        self.brokers = {
            **self.brokers,
            broker: BrokerEndpoint(id=broker, host="", port=0, epoch=self.revision),
        }
        self.on_change()
        return self.revision

    def expire(self, broker: BrokerId, epoch: int) -> None:
        """The lease ran out. A later registration is another lease."""
        endpoint = self.brokers.get(broker)
        if endpoint is None or endpoint.epoch != epoch:
            return
        self.revision += 1
        self.brokers = {key: value for key, value in self.brokers.items() if key != broker}
        self.on_change()
