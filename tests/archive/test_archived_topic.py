"""What the archive knows of a topic."""

import pytest

from respool.archive.archived_topic import TopicDescription, decode_description
from respool.archive.sealed_json import seal_json
from respool.model.archiving.archive_errors import ArchiveCorrupt


def test_a_description_survives_encoding() -> None:
    topic = TopicDescription(
        partitions=3,
        config={"retention.ms": "-1"},
        views={"rides.v.paid": {"respool.view.where": "tag = 'paid'"}},
    )
    assert decode_description(topic.encode(), name="test") == topic


@pytest.mark.parametrize(
    "fields",
    [
        {"v": 2, "partitions": 1, "config": {}, "views": {}},
        {"v": 1, "partitions": 0, "config": {}, "views": {}},
        {"v": 1, "partitions": 1, "config": [], "views": {}},
        {"v": 1, "partitions": 1, "config": {}, "views": {"a": 1}},
        {"v": 1},
    ],
)
def test_what_is_no_description_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ArchiveCorrupt):
        decode_description(seal_json(fields), name="test")
    with pytest.raises(ArchiveCorrupt):
        decode_description(b"{}", name="test")
