"""Share groups as queues: list, describe and create them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from respool.client.kafka import share_group_admin
from respool.client.kafka.configs import (
    ConfigResource,
    ConfigSource,
    alter_configs,
    describe_configs,
)
from respool.client.kafka.groups import GroupListing, list_groups
from respool.client.kafka.metadata import Place, TopicMetadata
from respool.client.kafka.share_group_admin import ShareGroupDescription, ShareProgress
from respool.model.operator_errors import NotFound, OperatorError
from respool.operate.cluster_admin import ClusterAdmin
from respool.operate.errors import client_errors_translated
from respool.operate.group_operations import KnownGroups

DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"
TAKES_DEAD_LETTERS = "errors.deadletterqueue.group.enable"
_OF_QUEUES = ("share.", "respool.share.", "errors.deadletterqueue.")

QueueStart = Literal["earliest", "latest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedQueue:
    group: GroupListing
    starts: Mapping[Place, ShareProgress]

    @property
    def topics(self) -> list[str]:
        return sorted({topic for topic, _ in self.starts})

    @property
    def lag(self) -> int:
        return total_lag(self.starts)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedQueue:
    group: ShareGroupDescription
    starts: Mapping[Place, ShareProgress]
    # The group's own settings of share groups; for others the broker's apply.
    settings: Mapping[str, str]

    @property
    def lag(self) -> int:
        return total_lag(self.starts)

    @property
    def dead_letter_topic(self) -> str | None:
        return self.settings.get(DEAD_LETTER_TOPIC) or None


class QueueOperations:
    def __init__(self, admin: ClusterAdmin) -> None:
        self._admin = admin
        self._cluster = admin.cluster

    def list(self) -> tuple[list[ListedQueue], KnownGroups]:
        """The queues, and the list they come from, which may be incomplete.

        Raises:
            Unreachable: no broker answers.
        """
        known = self._known()
        found = [ListedQueue(group=one, starts=self._starts(one.name)) for one in known.groups]
        return found, known

    def describe(self, name: str) -> DescribedQueue:
        """
        Raises:
            NotFound: there is no such share group; the hint names a similarly spelled one.
        """
        with client_errors_translated():
            group = share_group_admin.describe_share_group(self._cluster, name)
        if group is None:
            known = self._known()
            alike = get_close_matches(name, known.names, n=1)
            hint = f"did you mean {alike[0]}?" if alike else "see: respool queue list"
            raise NotFound(
                f"there is no share group {name!r} at {self._cluster.bootstrap}", hint=hint
            )
        return DescribedQueue(
            group=group, starts=self._starts(name), settings=self._own_settings(name)
        )

    def create(
        self,
        name: str,
        *,
        topics: Iterable[str],
        settings: Mapping[str, str],
        start: QueueStart | None,
    ) -> dict[Place, int]:
        """Store the group's settings, and with `start` its start offsets in the topics, which are returned.

        The topic of its dead letters is created if there is none.

        Raises:
            UsageError: a setting is invalid, or the group has settings already.
            NotFound: there is no such topic.
            OperatorError: there is such a group already.
        """
        found = [self._admin.topic(topic) for topic in topics]
        with client_errors_translated():
            group = share_group_admin.describe_share_group(self._cluster, name)
        if group is not None or self._own_settings(name):
            what = "is a share group" if group is not None else "are settings of a share group"
            raise OperatorError(
                f"there {what} {name!r} already",
                hint=f"change its settings: respool config alter group {name} --set NAME=VALUE",
            )
        with client_errors_translated():
            others = list_groups(self._cluster).groups
        if name in {one.name for one in others}:
            raise OperatorError(
                f"there is a consumer group {name!r}, which reads topics as logs",
                hint="take another name",
            )
        offsets = {} if start is None else self._offsets(found, start)
        letters = settings.get(DEAD_LETTER_TOPIC)
        # Errors in the other settings are found before a topic is created.
        self._alter(
            name,
            {key: text for key, text in settings.items() if key != DEAD_LETTER_TOPIC},
            is_trial=True,
        )
        if letters and letters not in self._admin.topics(named=[letters]):
            self._admin.create_topic(
                letters, partitions=None, settings={TAKES_DEAD_LETTERS: "true"}
            )
        self._alter(name, settings)
        if offsets:
            with client_errors_translated():
                share_group_admin.alter_share_starts(self._cluster, name, offsets)
        return offsets

    def _offsets(self, topics: Iterable[TopicMetadata], start: QueueStart) -> dict[Place, int]:
        ranges = self._admin.ranges(topics, isolation="read_uncommitted")
        return {
            place: one.start if start == "earliest" else one.end for place, one in ranges.items()
        }

    def _alter(self, name: str, settings: Mapping[str, str], *, is_trial: bool = False) -> None:
        if settings:
            with client_errors_translated():
                alter_configs(
                    self._cluster,
                    ConfigResource.GROUP,
                    name,
                    values=settings,
                    validate_only=is_trial,
                )

    def _known(self) -> KnownGroups:
        with client_errors_translated():
            found = share_group_admin.list_share_groups(self._cluster)
        return KnownGroups.of(found)

    def _starts(self, name: str) -> dict[Place, ShareProgress]:
        with client_errors_translated():
            return share_group_admin.fetch_share_starts(self._cluster, name)

    def _own_settings(self, name: str) -> dict[str, str]:
        with client_errors_translated():
            found = self._cluster.retrying(
                lambda: describe_configs(self._cluster, ConfigResource.GROUP, [name])
            )
        return {
            key: one.value
            for key, one in sorted(found[name].items())
            if one.source == ConfigSource.GROUP
            and one.value is not None
            and key.startswith(_OF_QUEUES)
        }


def total_lag(starts: Mapping[Place, ShareProgress]) -> int:
    return sum(one.lag or 0 for one in starts.values())
