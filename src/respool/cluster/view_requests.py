"""Creates, changes and deletes views, each in one write.

A view is created under the guard of its parent's key, so it never becomes a view of a topic that is deleted meanwhile,
or of another one with the same name. It is deleted with its parent (`topic_requests.py`).
"""

from collections.abc import Mapping
from types import MappingProxyType

from respool.cluster import keys
from respool.cluster.guarded_write import GuardedWrite
from respool.cluster.keys import TopicRecord, ViewRecord
from respool.cluster.topic_requests import check_name_is_free
from respool.cluster.view import ClusterView
from respool.model.cluster import TopicImage
from respool.model.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicationFactor,
    PolicyViolation,
)
from respool.model.ids import TopicId
from respool.model.view_config import LISTED, OF, ViewConfig, understood_view
from respool.ports.metadata_store import Guard

# Every broker has all of them in memory, and each batch that is read may be matched with all of its topic's.
VIEWS_MAX = 10_000
# The parent's number of partitions, and of replicas.
AS_PARENT = -1


def create_view(
    cluster: ClusterView,
    name: str,
    *,
    topic_id: TopicId,
    config: ViewConfig,
    partition_count: int = AS_PARENT,
    replication_factor: int = AS_PARENT,
) -> list[GuardedWrite]:
    """The write that creates a view.

    Raises:
        RequestError: the name is invalid or in use, the parent can have no view, or a number is not the parent's.
    """
    revision = check_name_is_free(cluster, name)
    parent = _parent(cluster, name, config.respool_view_of)
    count, factor = len(parent.partitions), len(parent.partitions[0].target)
    if partition_count not in (AS_PARENT, count):
        raise InvalidPartitions(
            f"a view has its parent's partitions: -1, or {count} as {parent.name!r}, not {partition_count}"
        )
    if replication_factor not in (AS_PARENT, factor):
        raise InvalidReplicationFactor(
            f"a view has its parent's replicas: -1, or {factor} as {parent.name!r}, not {replication_factor}"
        )
    if len(cluster.image.views) >= VIEWS_MAX:
        raise PolicyViolation(f"there are {VIEWS_MAX} views, no more are allowed")
    return _written(
        cluster,
        name,
        _record(topic_id, parent.id, config),
        revision=revision,
        parent=parent,
        why=f"view {name!r} of topic {parent.name!r} is created",
    )


def configure_view(
    cluster: ClusterView, view: TopicImage, overrides: Mapping[str, str]
) -> list[GuardedWrite]:
    """The write that replaces a view's settings: its condition, or whether it is listed.

    Raises:
        InvalidConfig: a setting is invalid, or the view would get another parent.
    """
    assert view.view is not None
    # Existing settings that are unknown here were set by a newer version: they stay, and block no change.
    foreign = dict(
        (view.overrides.items() - understood_view(view.overrides).items()) & overrides.items()
    )
    config = ViewConfig.parse({one: text for one, text in overrides.items() if one not in foreign})
    if config.respool_view_of != view.view.parent:
        raise InvalidConfig(
            f"{OF}: {view.name!r} is a view of {view.view.parent!r}, and its offsets are; "
            f"create another view for {config.respool_view_of!r}"
        )
    return _written(
        cluster,
        view.name,
        _record(view.id, view.view.parent_id, config, foreign),
        revision=view.revision,
        parent=None,
        why=f"view {view.name!r} has other settings",
    )


def delete_view(cluster: ClusterView, view: TopicImage) -> list[GuardedWrite]:
    """The write that deletes a view. Its parent's records stay."""
    key = keys.topic_key(view.name)
    return [
        GuardedWrite(
            guards=(cluster.guard, Guard(key=key, revision=view.revision)),
            deletes=(key,),
            why=f"view {view.name!r} is deleted",
        )
    ]


def _record(
    topic_id: TopicId,
    parent_id: TopicId,
    config: ViewConfig,
    foreign: Mapping[str, str] = MappingProxyType({}),
) -> TopicRecord:
    listed = {LISTED: "true"} if config.respool_view_listed else {}
    return TopicRecord(
        id=topic_id,
        overrides={**foreign, **listed},
        partition_count=0,
        view=ViewRecord(parent_id=parent_id, where=str(config.respool_view_where)),
    )


def _parent(cluster: ClusterView, name: str, parent: str) -> TopicImage:
    image = cluster.image
    topic = image.topics.get(parent)
    if parent == name:
        raise InvalidConfig(f"{OF}: {name!r} cannot be a view of itself")
    if parent in image.views:
        grandparent = image.log_name(parent)
        raise InvalidConfig(
            f"{OF}: {parent!r} is a view of {grandparent!r}; create the view of {grandparent!r} instead"
        )
    if topic is None:
        raise InvalidConfig(f"{OF}: there is no topic {parent!r}")
    if topic.internal:
        raise InvalidConfig(f"{OF}: {parent!r} belongs to the broker and has no views")
    return topic


def _written(
    cluster: ClusterView,
    name: str,
    record: TopicRecord,
    *,
    revision: int,
    parent: TopicImage | None,
    why: str,
) -> list[GuardedWrite]:
    key = keys.topic_key(name)
    guards = [cluster.guard, Guard(key=key, revision=revision)]
    if parent is not None:
        guards.append(Guard(key=keys.topic_key(parent.name), revision=parent.revision))
    return [GuardedWrite(guards=tuple(guards), puts={key: keys.encode_topic(record)}, why=why)]
