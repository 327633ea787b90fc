"""Reads the cluster image from the metadata store directly, without a broker."""

from collections.abc import Mapping

from respool.cluster import keys
from respool.cluster.view import ClusterView, read_view
from respool.model.cluster import PartitionImage
from respool.model.ids import BrokerId, TopicPartition
from respool.sim.net.simulated_store import SimStore


class ClusterObserver:
    def __init__(self, store: SimStore) -> None:
        self._store = store
        self._seen: tuple[int, ClusterView] | None = None
        # The partitions of the same revision.
        self._partitions: dict[TopicPartition, PartitionImage] | None = None

    @property
    def revision(self) -> int:
        return self._store.revision

    def view(self) -> ClusterView:
        """Return the whole cluster, as an operator's command reads it."""
        revision = self._store.revision
        if self._seen is None or self._seen[0] != revision:
            view = read_view(self._store.snapshot("").values)
            self._seen, self._partitions = (revision, view), None
        return self._seen[1]

    def partitions(self) -> Mapping[TopicPartition, PartitionImage]:
        view = self.view()
        if self._partitions is None:
            self._partitions = {
                TopicPartition(topic.name, number): image
                for topic, number, image in view.partitions()
            }
        return self._partitions

    def image_at(self, key: str) -> PartitionImage | None:
        """Return the stored state of a partition."""
        stored = self._store.get(key)
        return None if stored is None else keys.decode_partition(stored.value)

    def epoch_of(self, broker: BrokerId) -> int | None:
        """The broker epoch of the broker's registration; None if it is not registered."""
        endpoint = self.view().brokers.get(broker)
        return None if endpoint is None else endpoint.epoch

    def controller(self) -> BrokerId | None:
        stored = self._store.get(keys.CONTROLLER)
        return None if stored is None else keys.decode_controller(stored.value)
