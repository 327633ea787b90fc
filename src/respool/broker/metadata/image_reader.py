"""The cluster's image of what the metadata store holds. What no changed key is about is taken over from the last."""

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from respool.broker.metadata.image_view import registered_brokers
from respool.cluster import keys
from respool.model.broker_config import BrokerConfig
from respool.model.cluster import BrokerEndpoint, ClusterImage, TopicImage
from respool.model.errors import InvalidConfig
from respool.model.ids import BrokerId, TopicId
from respool.model.internal_topics import is_internal
from respool.model.stored_topic_config import StoredTopicConfig
from respool.model.topic_config import TopicConfig
from respool.ports.metadata_store import StoredValue

logger = logging.getLogger(__name__)

Values = Mapping[str, StoredValue]


class ImageReader:
    def __init__(self, *, me: BrokerId, defaults: TopicConfig) -> None:
        self._me = me
        self._defaults = defaults
        # Topics of which not every partition is known yet: the changes of one write come one by one.
        self._incomplete: dict[TopicId, str] = {}

    @property
    def incomplete(self) -> Collection[TopicId]:
        """Topics that are in the store, but not in the image yet."""
        return self._incomplete.keys()

    def read(
        self, values: Values, changed: frozenset[str], before: ClusterImage, *, revision: int
    ) -> ClusterImage:
        topics = dict(before.topics)
        # In an order of their own, so that a simulated run is the same each time.
        for name in sorted(self._names_of(changed, before)):
            topic = self.read_topic(values, name, before.topics.get(name))
            self._note_incomplete(values, name, is_complete=topic is not None)
            if topic is None:
                topics.pop(name, None)
            else:
                topics[name] = topic
        are_brokers_changed = any(key.startswith(keys.BROKERS) for key in changed)
        are_configs_changed = any(key.startswith(keys.BROKER_CONFIGS) for key in changed)
        return replace(
            before,
            brokers=self._read_brokers(values, before) if are_brokers_changed else before.brokers,
            controller=self._read_controller(values),
            topics=topics,
            topics_by_id={topic.id: topic for topic in topics.values()},
            broker_overrides=(
                _read_broker_overrides(values) if are_configs_changed else before.broker_overrides
            ),
            revision=revision,
        )

    def _read_brokers(self, values: Values, before: ClusterImage) -> dict[BrokerId, BrokerEndpoint]:
        """Those that are registered, and this one in any case: whoever asks has reached it."""
        brokers = {self._me: before.brokers[self._me]}
        return brokers | {one.id: one for one in registered_brokers(values)}

    def _read_controller(self, values: Values) -> BrokerId:
        stored = values.get(keys.CONTROLLER)
        # A broker alone is its own.
        return self._me if stored is None else keys.decode_controller(stored.value)

    def _names_of(self, changed: Iterable[str], before: ClusterImage) -> set[str]:
        """The topics that these keys are about."""
        names = {key.removeprefix(keys.TOPICS) for key in changed if key.startswith(keys.TOPICS)}
        for key in changed:
            if key.startswith(keys.PARTITIONS):
                topic_id, _ = keys.parse_partition_key(key)
                topic = before.topics_by_id.get(topic_id)
                if topic is not None:
                    names.add(topic.name)
                elif topic_id in self._incomplete:
                    names.add(self._incomplete[topic_id])
        return names

    def read_topic(
        self, values: Values, name: str, before: TopicImage | None = None
    ) -> TopicImage | None:
        """The topic as the store has it; None where it, or one of its partitions, is not there (yet)."""
        stored = values.get(keys.topic_key(name))
        if stored is None:
            return None
        record = keys.decode_topic(stored.value)
        partitions = []
        for number in range(record.partition_count):
            one = values.get(keys.partition_key(record.id, number))
            if one is None:
                return None
            partitions.append(keys.decode_partition(one.value, revision=one.revision))
        if before is not None and before.overrides == record.overrides:
            # Partitions change more often than settings, which may be long.
            config = before.config
        else:
            config = self._read_config(name, record.overrides)
        return TopicImage(
            name=name,
            id=record.id,
            partitions=tuple(partitions),
            overrides=record.overrides,
            config=config,
            internal=is_internal(name),
        )

    def _read_config(self, topic: str, overrides: Mapping[str, str]) -> TopicConfig:
        """As far as this version understands it: brokers are upgraded one by one."""
        read = StoredTopicConfig.read(overrides, base=self._defaults)
        for complaint in read.complaints:
            logger.warning("topic %s: a setting is not as it is stored: %s", topic, complaint)
        return read.config

    def _note_incomplete(self, values: Values, name: str, *, is_complete: bool) -> None:
        stored = values.get(keys.topic_key(name))
        for topic_id in [one for one, other in self._incomplete.items() if other == name]:
            del self._incomplete[topic_id]
        if stored is not None and not is_complete:
            self._incomplete[keys.decode_topic(stored.value).id] = name


def _read_broker_overrides(values: Values) -> dict[str, Mapping[str, str]]:
    found: dict[str, Mapping[str, str]] = {}
    for key, stored in values.items():
        if key.startswith(keys.BROKER_CONFIGS):
            overrides = keys.decode_broker_config(stored.value).values
            name = key.removeprefix(keys.BROKER_CONFIGS)
            found[name] = _understood(overrides, of=f"broker {name or 'any'}")
    return found


def _understood(overrides: Mapping[str, str], *, of: str) -> dict[str, str]:
    """Without what only a newer version knows."""
    understood = {}
    for name, text in overrides.items():
        try:
            BrokerConfig.parse({name: text})
        except InvalidConfig as error:
            logger.warning("%s: a setting is passed over: %s", of, error)
        else:
            understood[name] = text
    return understood
