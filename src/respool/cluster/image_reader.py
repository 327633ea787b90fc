"""Decodes the metadata store's keys to the cluster image. The only decoder of the whole store.

Changes are read incrementally: whatever no changed key affects is copied from the previous image.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from respool.cluster import keys
from respool.cluster.access_reader import with_access
from respool.cluster.login_store import with_logins
from respool.cluster.view_reader import stray_views, with_views
from respool.model.cluster import (
    NO_CONTROLLER,
    BrokerEndpoint,
    ClusterImage,
    RegistryEntry,
    StoredOverrides,
    TopicImage,
)
from respool.model.dynamic_config import parse_changes
from respool.model.errors import InvalidConfig
from respool.model.group_config import GroupConfig
from respool.model.ids import BrokerId, TopicId
from respool.model.internal_topics import is_internal
from respool.model.stored_topic_config import StoredTopicConfig
from respool.model.topic_config import TopicConfig
from respool.model.topic_defaults import defaults_for
from respool.ports.metadata_store import StoredValue

logger = logging.getLogger(__name__)

Values = Mapping[str, StoredValue]
Configs = dict[tuple[tuple[str, str], ...], StoredTopicConfig]


class ImageReader:
    def __init__(self, *, me: BrokerId | None, defaults: TopicConfig) -> None:
        """`me` is the broker that reads, which is in its image even before it has registered; None: not a broker."""
        self._me = me
        self._static_defaults = defaults
        # The defaults of topic settings, with those that were changed while the broker runs.
        self.defaults = defaults
        # Topics some of whose partitions are missing: the changes of one write may arrive one by one.
        self._incomplete: dict[TopicId, str] = {}

    @property
    def incomplete(self) -> Collection[TopicId]:
        """Topics that are in the store, but not yet in the image."""
        return self._incomplete.keys()

    def read_all(self, values: Values, *, revision: int = 0, cluster_id: str = "") -> ClusterImage:
        """The image of all keys in the store at one revision."""
        assert self._me is None, "a broker's image begins with its own endpoint"
        empty = ClusterImage(cluster_id=cluster_id, brokers={}, controller=NO_CONTROLLER)
        return self.read(values, frozenset(values), empty, revision=revision)

    def read(
        self, values: Values, changed: frozenset[str], before: ClusterImage, *, revision: int
    ) -> ClusterImage:
        if any(key.startswith(keys.BROKER_CONFIGS) for key in changed):
            before = self._with_broker_configs(before, values)
        topics = dict(before.topics)
        views = set()
        # Topics that are created together mostly have the same configuration.
        configs: Configs = {}
        # Sorted, so that a simulated run is reproducible.
        for name in sorted(self._names_of(changed, before)):
            topic = self.read_topic(values, name, before.topics.get(name), configs=configs)
            self._note_incomplete(values, name, is_complete=topic is not None)
            if topic is None:
                topics.pop(name, None)
                views.add(name)
            else:
                topics[name] = topic
                if name in before.views or name in before.dormant_views:
                    # A topic has taken over the name.
                    views.add(name)
        image = replace(
            before,
            topics=topics,
            topics_by_id={topic.id: topic for topic in topics.values()},
            revision=revision,
        )
        if views or image.views or image.dormant_views:
            image = with_views(image, values, views)
        if any(key.startswith(keys.BROKERS) for key in changed):
            image = replace(image, brokers=self._read_brokers(values, before))
        if any(key.startswith(keys.REGISTRY) for key in changed):
            image = replace(image, registry=_read_registry(values))
        image = with_logins(image, values, changed)
        group_keys = [key for key in changed if key.startswith(keys.GROUP_CONFIGS)]
        if group_keys:
            image = _with_group_configs(image, values, group_keys)
        return self._with_controller(with_access(image, values, changed), values)

    def _with_broker_configs(self, image: ClusterImage, values: Values) -> ClusterImage:
        """The image with the brokers' configuration, and with topics whose defaults may have changed with it."""
        stored = _read_broker_overrides(values)
        image = replace(
            image,
            stored_broker_overrides=stored,
            broker_overrides={
                name: _understood(one.values, parse_changes, of=f"broker {name or 'any'}")
                for name, one in stored.items()
            },
        )
        read = defaults_for(
            self._me,
            {name: one.values for name, one in stored.items()},
            static=self._static_defaults,
        )
        for complaint in read.complaints:
            logger.warning("a default of topics is not as it is stored: %s", complaint)
        if read.config == self.defaults:
            return image
        self.defaults = read.config
        topics = {name: self._with_defaults(topic) for name, topic in image.topics.items()}
        return replace(image, topics=topics)

    def _with_defaults(self, topic: TopicImage) -> TopicImage:
        config = self._read_config(topic.name, topic.overrides, {})
        # Unchanged topics stay the same objects: their partitions are left alone.
        return topic if config == topic.config else replace(topic, config=config)

    def _read_brokers(self, values: Values, before: ClusterImage) -> dict[BrokerId, BrokerEndpoint]:
        """The registered brokers, and always this one: a client that asks has reached it."""
        brokers = {} if self._me is None else {self._me: before.brokers[self._me]}
        return brokers | {one.id: one for one in _registered_brokers(values)}

    def _with_controller(self, image: ClusterImage, values: Values) -> ClusterImage:
        stored = values.get(keys.CONTROLLER)
        if stored is not None:
            controller, revision = keys.decode_controller(stored.value), stored.revision
        else:
            # A broker without a cluster is its own controller.
            controller, revision = NO_CONTROLLER if self._me is None else self._me, 0
        return replace(image, controller=controller, controller_revision=revision)

    def _names_of(self, changed: Iterable[str], before: ClusterImage) -> set[str]:
        """The names of the topics that these keys affect."""
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
        self,
        values: Values,
        name: str,
        before: TopicImage | None = None,
        *,
        configs: Configs | None = None,
    ) -> TopicImage | None:
        """The topic as stored; None if its key or one of its partitions is missing, or if it is a view.

        `configs` are those that were read before, by the overrides.
        """
        stored = values.get(keys.topic_key(name))
        if stored is None:
            return None
        record = keys.decode_topic(stored.value)
        if record.view is not None:
            return None
        partitions = []
        for number in range(record.partition_count):
            one = values.get(keys.partition_key(record.id, number))
            if one is None:
                return None
            partitions.append(keys.decode_partition(one.value, revision=one.revision))
        if before is not None and before.overrides == record.overrides:
            # Partitions change more often than the configuration, which may take long to parse.
            config = before.config
        else:
            config = self._read_config(name, record.overrides, {} if configs is None else configs)
        return TopicImage(
            name=name,
            id=record.id,
            partitions=tuple(partitions),
            overrides=record.overrides,
            config=config,
            internal=is_internal(name),
            layout=record.layout,
            revision=stored.revision,
        )

    def _read_config(
        self, topic: str, overrides: Mapping[str, str], configs: Configs
    ) -> TopicConfig:
        """The configuration, as far as this version knows the settings: brokers are upgraded one by one."""
        if not overrides:
            return self.defaults
        key = tuple(overrides.items())
        if key not in configs:
            configs[key] = StoredTopicConfig.read(overrides, base=self.defaults)
        read = configs[key]
        for complaint in read.complaints:
            logger.warning("topic %s: a setting is not as it is stored: %s", topic, complaint)
        return read.config

    def _note_incomplete(self, values: Values, name: str, *, is_complete: bool) -> None:
        stored = values.get(keys.topic_key(name))
        for topic_id in [one for one, other in self._incomplete.items() if other == name]:
            del self._incomplete[topic_id]
        if stored is not None and not is_complete:
            record = keys.decode_topic(stored.value)
            if record.view is None:
                self._incomplete[record.id] = name


def stray_keys(
    values: Values, image: ClusterImage, incomplete: Collection[TopicId] = ()
) -> dict[str, int]:
    """Keys of partitions and views that belong to no topic, with their revisions; see `strays.py`."""
    counts = {topic.id.hex: len(topic.partitions) for topic in image.topics.values()}
    unseen = {one.hex for one in incomplete}
    strays = stray_views(image, incomplete)
    for key, stored in values.items():
        if key.startswith(keys.PARTITIONS):
            topic_id, _, number = key.removeprefix(keys.PARTITIONS).partition("/")
            if int(number) >= counts.get(topic_id, 0) and topic_id not in unseen:
                strays[key] = stored.revision
    return strays


def _registered_brokers(values: Values) -> Iterator[BrokerEndpoint]:
    for key, stored in values.items():
        if key.startswith(keys.BROKERS):
            broker = BrokerId(int(key.removeprefix(keys.BROKERS)))
            yield keys.decode_broker(broker, stored.value, revision=stored.revision).endpoint


def _read_registry(values: Values) -> dict[BrokerId, RegistryEntry]:
    return {
        BrokerId(int(key.removeprefix(keys.REGISTRY))): keys.decode_registry(
            stored.value, revision=stored.revision
        )
        for key, stored in values.items()
        if key.startswith(keys.REGISTRY)
    }


def _read_broker_overrides(values: Values) -> dict[str, StoredOverrides]:
    return {
        key.removeprefix(keys.BROKER_CONFIGS): keys.decode_overrides(
            stored.value, revision=stored.revision
        )
        for key, stored in values.items()
        if key.startswith(keys.BROKER_CONFIGS)
    }


def _with_group_configs(
    image: ClusterImage, values: Values, changed: Iterable[str]
) -> ClusterImage:
    """The image with these groups' configuration. Others are not read again: any client may configure many groups."""
    stored, configs = dict(image.stored_group_overrides), dict(image.group_configs)
    for key in sorted(changed):
        group_id = key.removeprefix(keys.GROUP_CONFIGS)
        value = values.get(key)
        if value is None:
            stored.pop(group_id, None)
            configs.pop(group_id, None)
            continue
        overrides = keys.decode_overrides(value.value, revision=value.revision)
        stored[group_id] = overrides
        configs[group_id] = GroupConfig.parse(
            _understood(overrides.values, GroupConfig.parse, of=f"group {group_id!r}")
        )
    return replace(image, stored_group_overrides=stored, group_configs=configs)


def _understood(
    overrides: Mapping[str, str], parse: Callable[[Mapping[str, str]], object], *, of: str
) -> dict[str, str]:
    """The overrides without settings that only a newer version knows."""
    understood = {}
    for name, text in overrides.items():
        try:
            parse({name: text})
        except InvalidConfig as error:
            logger.warning("%s: a setting is passed over: %s", of, error)
        else:
            understood[name] = text
    return understood
