"""Selects the topics to mirror, and creates them at the target with the source's partition count and configs."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias
from uuid import UUID

from respool.client.kafka.admin import create_partitions, create_topic
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.codes import Code
from respool.client.kafka.configs import (
    ConfigResource,
    ConfigSource,
    alter_configs,
    describe_configs,
)
from respool.client.kafka.errors import BrokerRefused
from respool.client.kafka.layout_descriptions import TopicLayout, describe_layouts
from respool.client.kafka.metadata import TopicMetadata
from respool.client.kafka.view_descriptions import views_among
from respool.mirror.cluster_link import ACTIVE_CONFIG, MIRROR_CONFIG
from respool.mirror.clusters import as_operator_errors
from respool.mirror.partition_copy import StopReason
from respool.model.archiving.archive_topic_settings import ARCHIVE_SETTINGS
from respool.model.internal_topics import is_internal
from respool.model.kafka_settings.inert_topic_settings import INERT
from respool.model.operator_errors import OperatorError, UsageError
from respool.model.stored_topic_config import understood
from respool.model.topic_config import OF_ITSELF
from respool.model.view_config import OF

# The target's operator decides about the durability of the copy, and whether it is archived.
NOT_COPIED = (
    OF_ITSELF
    | ARCHIVE_SETTINGS
    | {
        "local.retention.bytes",
        "local.retention.ms",
        "flush.messages",
        "flush.ms",
        "min.insync.replicas",
        "unclean.leader.election.enable",
        "respool.archive.max.age.ms",
        "respool.flush",
        "respool.flush.interval.ms",
        ACTIVE_CONFIG,
    }
)


@dataclass(frozen=True, slots=True)
class TopicFilter:
    """Selects topics by regular expressions for whole names."""

    include: tuple[re.Pattern[str], ...]
    exclude: tuple[re.Pattern[str], ...] = ()

    def has(self, name: str) -> bool:
        return any(one.fullmatch(name) for one in self.include) and not any(
            one.fullmatch(name) for one in self.exclude
        )

    def of(self, names: Iterable[str]) -> list[str]:
        # Without internal topics, and without topics in which our own tools store state of their cluster.
        return sorted(
            name
            for name in names
            if not is_internal(name) and not name.startswith("__") and self.has(name)
        )


def parse_patterns(texts: Collection[str], *, option: str) -> tuple[re.Pattern[str], ...]:
    """
    Raises:
        UsageError: one is not a regular expression.
    """
    found = []
    for text in texts:
        try:
            found.append(re.compile(text))
        except re.error as error:
            raise UsageError(
                f"{option} {text!r} is not a regular expression: {error}",
                hint="all: '.*'; names that begin with rides: 'rides.*'",
            ) from None
    return tuple(found)


# A name and the topic id.
TopicKey: TypeAlias = tuple[str, UUID | None]


def _key(topic: TopicMetadata) -> TopicKey:
    return topic.name, topic.id


class MirrorsUnsupported(OperatorError):
    def __init__(self, broker: str) -> None:
        super().__init__(
            f"the broker at {broker} does not support mirror topics: it is not a Respool broker, or too old",
            hint="the target must be a Respool cluster; the source may be any that speaks Kafka's protocol",
        )


class TargetTopics:
    """Creates topics at the target and adds partitions. Blocking.

    Its methods raise `Unreachable` if no broker answers, and `OperatorError` if a request is refused.
    """

    def __init__(self, source: Cluster, target: Cluster) -> None:
        self._source = source
        self._target = target
        # What was asked of the source: whether each of these is a view.
        self._are_views: dict[TopicKey, bool] = {}
        # Source configs that Respool refuses, by topic.
        self.left_out: dict[str, list[str]] = {}
        self.compacted: set[str] = set()
        # By target topic: how many of its partitions take records at the source; 0: all.
        self._active: dict[str, int] = {}

    def views_among(self, topics: Collection[TopicMetadata]) -> set[str]:
        """The names of the source topics, among these, that are views. Each is asked for once."""
        unknown = {_key(one) for one in topics} - self._are_views.keys()
        if unknown:
            names = sorted(name for name, _ in unknown)
            with as_operator_errors():
                found = views_among(self._source, names)
            self._are_views |= {key: key[0] in found for key in unknown}
        return {one.name for one in topics if self._are_views[_key(one)]}

    def create(self, name: str, *, partitions: int) -> None:
        """
        Raises:
            MirrorsUnsupported: the target is not Respool, or too old.
        """
        with as_operator_errors():
            configs = describe_configs(self._source, ConfigResource.TOPIC, [name])[name]
        wanted = {
            one.name: one.value or ""
            for one in configs.values()
            if one.source == ConfigSource.TOPIC and one.name not in NOT_COPIED
        }
        accepted = understood(wanted)
        if refused := sorted(wanted.keys() - accepted.keys()):
            self.left_out[name] = refused
        # Without what has no effect: an older target may not know it.
        copied = {key: value for key, value in accepted.items() if key not in INERT}
        try:
            with as_operator_errors():
                self._create(name, partitions, {**copied, MIRROR_CONFIG: "true"})
        except OperatorError as error:
            refusal = error.__cause__
            if isinstance(refusal, BrokerRefused) and refusal.code == Code.invalid_config:
                raise self._invalid_config(name, partitions, refusal.message) from error
            raise

    def _create(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        try:
            create_topic(self._target, name, partitions=partitions, configs=configs)
        except BrokerRefused as error:
            # If the topic was created by someone else, the next sync checks whether it is a mirror.
            if error.code != Code.topic_already_exists:
                raise

    def _invalid_config(self, name: str, partitions: int, message: str) -> OperatorError:
        target = self._target.bootstrap
        if MIRROR_CONFIG in message:
            return MirrorsUnsupported(target)
        # Some values are valid in Kafka and not in Respool.
        by_hand = (
            f"respool topic create {name} --partitions {partitions} --set {MIRROR_CONFIG}=true"
        )
        return OperatorError(
            f"the target refuses the source's settings: {message}",
            hint=f"create it yourself with settings of your choice: {by_hand} --broker {target}",
        )

    def grow(self, name: str, *, partitions: int) -> None:
        with as_operator_errors():
            create_partitions(self._target, name, count=partitions)

    def source_layouts(self) -> dict[str, TopicLayout]:
        """The layouts of topics that were shrunk at the source."""
        with as_operator_errors():
            return describe_layouts(self._source)

    def note_active(self, name: str, active: int) -> bool:
        """Keep with the copy how many partitions take records at the source; 0: all. Return whether that has changed.

        The copy has it before it has records that follow from it, so it can be promoted at any moment.
        """
        if self._active.get(name, 0) == active:
            return False
        with as_operator_errors():
            alter_configs(
                self._target, ConfigResource.TOPIC, name, values={ACTIVE_CONFIG: str(active)}
            )
        self._active[name] = active
        return True

    def mirrors_among(self, names: Collection[str]) -> dict[str, bool]:
        """True for each of these target topics that is a mirror."""
        found = self._values(self._target, names)
        self._active |= {name: int(values[ACTIVE_CONFIG] or 0) for name, values in found.items()}
        return {name: values[MIRROR_CONFIG] == "true" for name, values in found.items()}

    def note_compacted_at_source(self, names: Collection[str]) -> None:
        """Check for topics that became compacted at the source after they were created at the target."""
        self._values(self._source, names)

    def _values(self, cluster: Cluster, names: Collection[str]) -> dict[str, dict[str, str]]:
        """Return the configs of topics that a mirror uses; records which topics are compacted."""
        keys = (MIRROR_CONFIG, ACTIVE_CONFIG, "cleanup.policy")
        with as_operator_errors():
            found = describe_configs(cluster, ConfigResource.TOPIC, sorted(names))
        values = {
            name: {key: (configs[key].value or "") if key in configs else "" for key in keys}
            for name, configs in found.items()
        }
        self.compacted |= {
            name for name, each in values.items() if "compact" in each["cleanup.policy"]
        }
        return values

    def check_target(self) -> None:
        """
        Raises:
            MirrorsUnsupported: the target is not Respool, or too old.
        """
        with as_operator_errors():
            names = [one for one in self._target.refresh_all() if not one.startswith("__")][:1]
            found = describe_configs(self._target, ConfigResource.TOPIC, names)
        # A view has no settings of topics; a broker that has views knows mirrors.
        if any(not {MIRROR_CONFIG, OF} & configs.keys() for configs in found.values()):
            raise MirrorsUnsupported(self._target.bootstrap)


def why_not_followed(
    name: str,
    source: TopicMetadata | None,
    known: TopicMetadata,
    target: TopicMetadata | None,
    *,
    is_mirror: bool,
) -> tuple[StopReason, str] | None:
    """Why a topic that was being copied must be stopped; None if it need not."""
    if source is None:
        return StopReason.RELEASED, f"{name} was deleted at the source; the copy is kept"
    if source.id is not None and known.id is not None and source.id != known.id:
        why = f"{name} was deleted and recreated at the source; the copy is of the old topic"
        return StopReason.DIFFERS, why
    if target is not None and not is_mirror:
        return StopReason.RELEASED, f"{name} is no longer a mirror: it was promoted"
    return None


def partition_counts(topics: Mapping[str, TopicMetadata], name: str) -> int:
    return len(topics[name].leaders) if name in topics else 0
