"""Views in the cluster image: each has a record of its own, and partitions and settings of its parent.

A parent is found by its id, so a topic that is created again has no views. A record that cannot be served stays
dormant: its parent may be in the store and not in the image yet, and a newer version may understand its condition.
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

from respool.cluster import keys
from respool.model.cluster import ClusterImage, DormantView, TopicImage, ViewOf
from respool.model.errors import InvalidConfig
from respool.model.ids import TopicId
from respool.model.view_config import parse_listed
from respool.model.where import parse_where
from respool.ports.metadata_store import StoredValue

logger = logging.getLogger(__name__)

Values: TypeAlias = Mapping[str, StoredValue]


def with_views(image: ClusterImage, values: Values, changed: Iterable[str]) -> ClusterImage:
    """The image with these views as they are stored now, and with all views as their parents are.

    `image` has the topics as they are, and the views as they were.
    """
    views, dormant = dict(image.views), dict(image.dormant_views)
    woken = (
        name
        for name, view in dormant.items()
        if view.is_orphan == (view.parent_id in image.topics_by_id)
    )
    # Sorted, so that a simulated run is reproducible.
    reread = sorted({*changed, *woken})
    is_same = not reread
    for name in reread:
        views.pop(name, None)
        dormant.pop(name, None)
        found = read_view(values, name, image.topics_by_id)
        if isinstance(found, TopicImage):
            views[name] = found
        elif found is not None:
            dormant[name] = found
    for name, view in list(views.items()):
        assert view.view is not None
        parent = image.topics_by_id.get(view.view.parent_id)
        if parent is None:
            is_same = False
            del views[name]
            dormant[name] = DormantView(
                parent_id=view.view.parent_id, is_orphan=True, revision=view.revision
            )
        elif parent.partitions is not view.partitions or parent.config is not view.config:
            is_same = False
            views[name] = replace(view, partitions=parent.partitions, config=parent.config)
    if is_same:
        # An unchanged object tells brokers that no view has changed, as in nearly all changes.
        return image
    return replace(
        image,
        views=views,
        views_by_id={view.id: view for view in views.values()},
        dormant_views=dormant,
    )


def read_view(
    values: Values, name: str, topics_by_id: Mapping[TopicId, TopicImage]
) -> TopicImage | DormantView | None:
    """The view as stored; None if there is no view of this name."""
    stored = values.get(keys.topic_key(name))
    record = None if stored is None else keys.decode_topic(stored.value)
    if stored is None or record is None or record.view is None:
        return None
    parent = topics_by_id.get(record.view.parent_id)
    dormant = DormantView(
        parent_id=record.view.parent_id, is_orphan=parent is None, revision=stored.revision
    )
    if parent is None:
        return dormant
    try:
        where = parse_where(record.view.where)
    except InvalidConfig as error:
        logger.warning("view %s is not served: its condition is not understood: %s", name, error)
        return dormant
    return TopicImage(
        name=name,
        id=record.id,
        partitions=parent.partitions,
        overrides=record.overrides,
        config=parent.config,
        view=ViewOf(
            parent=parent.name,
            parent_id=parent.id,
            where=where,
            is_listed=parse_listed(record.overrides),
        ),
        revision=stored.revision,
    )


def stray_views(image: ClusterImage, incomplete: Collection[TopicId]) -> dict[str, int]:
    """Keys of views whose parents were deleted, with their revisions; see `strays.py`."""
    return {
        keys.topic_key(name): view.revision
        for name, view in image.dormant_views.items()
        if view.is_orphan and view.parent_id not in incomplete
    }
