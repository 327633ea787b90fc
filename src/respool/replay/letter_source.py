"""Where a group's dead letters are."""

from dataclasses import dataclass
from typing import Self

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.configs import ConfigResource, describe_configs
from respool.client.kafka.share_group_admin import describe_share_group
from respool.model.retry.group_topics import dead_letter_topic
from respool.replay.errors import ReplayNotFound, client_errors_translated

TOPIC_SETTING = "errors.deadletterqueue.topic.name"


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterSource:
    group: str
    topic: str
    # Others may have their letters in the same topic.
    is_shared: bool = False

    @classmethod
    def of_retries(cls, group: str) -> Self:
        """Of a group whose consumers retry."""
        return cls(group=group, topic=dead_letter_topic(group))

    @property
    def only_group(self) -> str | None:
        return self.group if self.is_shared else None


def letters_of_queue(cluster: Cluster, group: str) -> LetterSource:
    """Of a share group, whose settings name the topic.

    Raises:
        ReplayNotFound: there is no such share group, or it has no topic for dead letters.
        ReplayError: the cluster could not be asked.
    """
    with client_errors_translated():
        found = cluster.retrying(
            lambda: describe_configs(cluster, ConfigResource.GROUP, [group], keys=[TOPIC_SETTING])
        )
        setting = found[group].get(TOPIC_SETTING)
        if setting is not None and setting.value:
            return LetterSource(group=group, topic=setting.value, is_shared=True)
        if describe_share_group(cluster, group) is None:
            raise ReplayNotFound(
                f"there is no share group {group!r} at {cluster.bootstrap}",
                hint="see: respool queue list",
            )
    raise ReplayNotFound(
        f"share group {group!r} has no topic for dead letters, so messages that fail too often end",
        hint=f"name one: respool config alter group {group} --set {TOPIC_SETTING}=dlq.{group}",
    )


def no_letters(source: LetterSource) -> ReplayNotFound:
    """The topic of the dead letters does not exist."""
    return ReplayNotFound(
        f"group {source.group!r} has no dead letters: there is no topic {source.topic}",
        hint="which groups have some: respool dlq list",
    )
