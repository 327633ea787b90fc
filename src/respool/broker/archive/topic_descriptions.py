"""Updates the archive's description of a topic whenever one of its segments is archived."""

from collections.abc import Callable

from respool.archive.archived_topic import TopicDescription
from respool.archive.object_keys import TopicKeys, parse_numbered
from respool.broker.partitions.partition import Partition
from respool.model.archiving.archive_errors import ObjectMissing
from respool.model.cluster import ClusterImage, TopicImage
from respool.model.ids import TopicId
from respool.model.view_config import WHERE
from respool.ports.object_store import Creation, ObjectStore, list_all

ATTEMPTS_MAX = 5


class TopicDescriptions:
    def __init__(self, store: ObjectStore, *, image: Callable[[], ClusterImage]) -> None:
        self._store = store
        self._image = image
        # The last known contents of the store.
        self._written: dict[TopicId, bytes] = {}

    async def write(self, partition: Partition) -> None:
        """Write the topic's description, if it has changed.

        Raises:
            ArchiveUnavailable: the store does not answer.
        """
        image = self._image()
        topic = image.topics.get(partition.name.topic)
        if topic is None or topic.id != partition.topic_id:
            return
        content = describe(topic, image).encode()
        if self._written.get(topic.id) == content:
            return
        keys = TopicKeys(topic.name, topic.id)
        for _ in range(ATTEMPTS_MAX):
            number, newest = await newest_description(self._store, keys)
            if newest == content or (
                await self._store.create(keys.description(number + 1), content) is Creation.CREATED
            ):
                self._written[topic.id] = content
                return


async def newest_description(store: ObjectStore, keys: TopicKeys) -> tuple[int, bytes | None]:
    """The number and content of the newest one; 0 and None if there is none."""
    numbered = [
        (parsed[0], one.key)
        for one in await list_all(store, keys.descriptions)
        if (parsed := parse_numbered(one.key)) is not None
    ]
    if not numbered:
        return 0, None
    number, key = max(numbered)
    try:
        return number, bytes(await store.read(key))
    except ObjectMissing:
        return number, None


def describe(topic: TopicImage, image: ClusterImage) -> TopicDescription:
    views = {
        view.name: {**view.overrides, WHERE: str(view.view.where)}
        for view in image.views.values()
        if view.view is not None and view.view.parent_id == topic.id
    }
    return TopicDescription(
        partitions=len(topic.partitions), config=dict(topic.overrides), views=views
    )
