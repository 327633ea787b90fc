"""Which topics are mirrored, and creating them at the target, with the partition count and settings of the source."""

import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from respool.cli.errors import TopicExists
from respool.cli.kafka import Cluster, Setting
from respool.client.kafka.metadata import TopicMetadata
from respool.mirror.partition_copy import StopReason
from respool.model.internal_topics import is_internal
from respool.model.operator_errors import OperatorError, UsageError
from respool.model.topic_config import CONFIG_RULES, OF_ITSELF

MIRROR_SETTING = "respool.mirror"
# Durability of the copy is up to the target's operator.
NOT_COPIED = OF_ITSELF | {
    "min.insync.replicas",
    "unclean.leader.election.enable",
    "respool.flush",
    "respool.flush.interval.ms",
}


@dataclass(frozen=True, slots=True)
class TopicFilter:
    """Topics by regular expressions for whole names."""

    include: tuple[re.Pattern[str], ...]
    exclude: tuple[re.Pattern[str], ...] = ()

    def has(self, name: str) -> bool:
        return any(one.fullmatch(name) for one in self.include) and not any(
            one.fullmatch(name) for one in self.exclude
        )

    def of(self, names: Iterable[str]) -> list[str]:
        # Internal topics, and those in which our own tools keep notes about their cluster, are left out.
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


class MirrorsUnsupported(OperatorError):
    def __init__(self, broker: str) -> None:
        super().__init__(
            f"the broker at {broker} does not support mirror topics: it is not a Respool broker, or too old",
            hint="the target must be a Respool cluster; the source may be any that speaks Kafka's protocol",
        )


class TargetTopics:
    """Creates topics at the target and adds partitions. Blocking."""

    def __init__(self, source: Cluster, target: Cluster) -> None:
        self._source = source
        self._target = target
        # Settings of the source that the target does not know, by topic.
        self.left_out: dict[str, list[str]] = {}
        self.compacted: set[str] = set()

    def create(self, name: str, *, partitions: int) -> None:
        settings = self._source.settings([name])[name]
        own = [one for one in settings if one.source == "topic"]
        copied = {
            one.name: one.value
            for one in own
            if one.name in CONFIG_RULES and one.name not in NOT_COPIED
        }
        unknown = sorted(one.name for one in own if one.name not in CONFIG_RULES)
        if unknown:
            self.left_out[name] = unknown
        try:
            # If somebody else created it meanwhile, the sync checks next whether it is a mirror.
            with suppress(TopicExists):
                self._target.create_topic(
                    name, partitions=partitions, settings={**copied, MIRROR_SETTING: "true"}
                )
        except UsageError as error:
            if MIRROR_SETTING in error.message:
                raise MirrorsUnsupported(self._target.broker) from error
            # Values that Kafka accepts and Respool does not.
            by_hand = (
                f"respool topic create {name} --partitions {partitions} --set {MIRROR_SETTING}=true"
            )
            raise OperatorError(
                f"the target refuses the source's settings: {error.message}",
                hint=f"create it yourself with settings of your choice: {by_hand} --broker {self._target.broker}",
            ) from error

    def grow(self, name: str, *, partitions: int) -> None:
        self._target.grow_topic(name, partitions=partitions)

    def mirrors_among(self, names: Collection[str]) -> dict[str, bool]:
        """For each of these topics of the target, whether it is a mirror."""
        settings = self._target.settings(sorted(names))
        self._note_compacted(settings)
        return {name: _value(each, MIRROR_SETTING) == "true" for name, each in settings.items()}

    def note_compacted_at_source(self, names: Collection[str]) -> None:
        """A topic may become compacted at the source after it was created at the target."""
        self._note_compacted(self._source.settings(sorted(names)))

    def _note_compacted(self, settings: Mapping[str, Iterable[Setting]]) -> None:
        for name, each in settings.items():
            if "compact" in _value(each, "cleanup.policy"):
                self.compacted.add(name)

    def check_target(self) -> None:
        """
        Raises:
            MirrorsUnsupported: the target is not Respool, or too old.
        """
        names = [name for name in self._target.topics() if not name.startswith("__")][:1]
        settings = self._target.settings(names)
        for each in settings.values():
            if all(one.name != MIRROR_SETTING for one in each):
                raise MirrorsUnsupported(self._target.broker)


def _value(settings: Iterable[Setting], name: str) -> str:
    return next((one.value for one in settings if one.name == name), "")


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
