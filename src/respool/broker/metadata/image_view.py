"""What decisions about the cluster are made on, out of the image that is there already.

`cluster/view.py` reads the same out of the store's bytes; with many partitions that takes too long to do it for every
request while others wait.
"""

from collections.abc import Collection, Iterator, Mapping

from respool.cluster import keys
from respool.cluster.view import ClusterView, TopicRules, TopicView
from respool.model.cluster import BrokerEndpoint, ClusterImage, TopicImage
from respool.model.ids import BrokerId, TopicId
from respool.model.topic_config import Flush, TopicConfig
from respool.ports.metadata_store import StoredValue

Values = Mapping[str, StoredValue]


class TopicViews:
    """Those of an image's topics. Only what has changed since is made anew: there may be thousands."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[TopicImage, TopicView]] = {}

    def of(self, image: ClusterImage, values: Values) -> dict[str, TopicView]:
        known, made = self._known, {}
        for name, topic in image.topics.items():
            before = known.get(name)
            revision = values[keys.topic_key(name)].revision
            # An image's topics are replaced, never changed.
            if before is None or before[0] is not topic or before[1].revision != revision:
                before = topic, _topic(topic, revision)
            made[name] = before
        self._known = made
        return {name: view for name, (_, view) in made.items()}


def view_of(
    image: ClusterImage,
    values: Values,
    *,
    topics: Mapping[str, TopicView],
    brokers: Mapping[BrokerId, BrokerEndpoint],
    incomplete: Collection[TopicId],
    creating: Collection[TopicId],
    with_strays: bool,
) -> ClusterView:
    """The view of these values and the image made of them. `incomplete` are topics that the image does not show yet."""
    controller = values.get(keys.CONTROLLER)
    return ClusterView(
        # 0: there is no controller, and there must be none when the write is applied.
        controller_revision=0 if controller is None else controller.revision,
        brokers=brokers,
        registry=registry_of(values),
        topics=topics,
        broker_overrides={name: _overrides(values, name) for name in image.broker_overrides},
        strays=dict(_strays(image, values, incomplete)) if with_strays else {},
        creating=frozenset(creating),
    )


def rules_of(config: TopicConfig) -> TopicRules:
    return TopicRules(
        min_isr=config.min_insync_replicas,
        is_unclean_allowed=config.unclean_leader_election_enable,
        is_synced=config.respool_flush is Flush.ALWAYS,
    )


def registered_brokers(values: Values) -> Iterator[BrokerEndpoint]:
    for key, stored in values.items():
        if key.startswith(keys.BROKERS):
            broker = BrokerId(int(key.removeprefix(keys.BROKERS)))
            yield keys.decode_broker(broker, stored.value, revision=stored.revision).endpoint


def registry_of(values: Values) -> dict[BrokerId, keys.RegistryEntry]:
    return {
        BrokerId(int(key.removeprefix(keys.REGISTRY))): keys.decode_registry(
            stored.value, revision=stored.revision
        )
        for key, stored in values.items()
        if key.startswith(keys.REGISTRY)
    }


def _overrides(values: Values, name: str) -> keys.BrokerOverrides:
    stored = values[keys.broker_config_key(name)]
    return keys.decode_broker_config(stored.value, revision=stored.revision)


def _topic(topic: TopicImage, revision: int) -> TopicView:
    return TopicView(
        name=topic.name,
        id=topic.id,
        partitions=topic.partitions,
        overrides=topic.overrides,
        rules=rules_of(topic.config),
        revision=revision,
    )


def _strays(
    image: ClusterImage, values: Values, incomplete: Collection[TopicId]
) -> Iterator[tuple[str, int]]:
    counts = {topic.id.hex: len(topic.partitions) for topic in image.topics.values()}
    unseen = {one.hex for one in incomplete}
    for key, stored in values.items():
        if key.startswith(keys.PARTITIONS):
            topic_id, _, number = key.removeprefix(keys.PARTITIONS).partition("/")
            if int(number) >= counts.get(topic_id, 0) and topic_id not in unseen:
                yield key, stored.revision
