"""Settings of topics that are queues."""

import pytest

from respool.model.errors import InvalidConfig
from respool.model.topic_config import WITHOUT_DEFAULT, TopicConfig


def test_finished_records_are_not_deleted_from_a_compacted_topic() -> None:
    with pytest.raises(InvalidConfig, match="does not go with"):
        TopicConfig.parse(
            {"respool.share.delete.finished": "true", "cleanup.policy": "compact,delete"}
        )


def test_a_broker_has_no_default_for_them() -> None:
    assert "respool.share.delete.finished" in WITHOUT_DEFAULT
    assert not TopicConfig().respool_share_delete_finished
