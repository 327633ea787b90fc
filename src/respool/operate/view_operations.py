"""Views for an operator: created, found by name, and described with their parent's partitions."""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from respool.client.kafka.view_descriptions import ViewDescription
from respool.model.operator_errors import NotFound, UsageError
from respool.model.view_config import LISTED, OF, WHERE
from respool.model.where import Where
from respool.operate.cluster_admin import ClusterAdmin


def create_view(
    admin: ClusterAdmin, name: str, *, of: str, where: Where, is_listed: bool = False
) -> None:
    """
    Raises:
        NotFound: there is no topic `of`.
        TopicExists: there is a topic or view of this name.
        UsageError: the topic can have no view.
    """
    parent = admin.topic(of)
    settings = {OF: parent.name, WHERE: str(where)}
    admin.create_topic(
        name,
        partitions=None,
        settings={**settings, LISTED: "true"} if is_listed else settings,
    )


def find_views(admin: ClusterAdmin, names: Sequence[str]) -> list[ViewDescription]:
    """
    Raises:
        NotFound: there is no view of one of these names; the hint names a similarly spelled one.
        UsageError: it is a topic.
    """
    views = admin.views()
    for name in names:
        if name in views:
            continue
        if name in admin.topics():
            raise UsageError(
                f"{name} is a topic, not a view", hint=f"see: respool topic describe {name}"
            )
        alike = get_close_matches(name, views, n=1)
        hint = f"did you mean {alike[0]}?" if alike else "see: respool view list"
        raise NotFound(f"there is no view {name!r} at {admin.bootstrap}", hint=hint)
    return [views[name] for name in names]


def describe_view(admin: ClusterAdmin, view: ViewDescription) -> list[dict[str, Any]]:
    """A document for each partition: its leader and its offsets, which are the parent's."""
    topic = admin.topic(view.name)
    ranges = admin.ranges([topic], isolation="read_uncommitted", led_only=True)
    documents = []
    for number, leader in topic.leaders.items():
        held = ranges.get((view.name, number))
        documents.append(
            {
                "partition": number,
                # None if the broker in the metadata did not answer as the leader.
                "leader": leader.broker if held and leader is not None else None,
                "start_offset": held.start if held else None,
                "end_offset": held.end if held else None,
            }
        )
    return documents
