"""What a replay asks of the topic that it writes to."""

import pytest

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.configs import ConfigSetting, ConfigSource
from respool.replay import topic_copy


@pytest.mark.parametrize(
    ("policy", "keeps_all"),
    [("delete", False), ("compact,delete", False), ("compact", True), ("", True), (None, False)],
)
def test_a_target_without_deletion_keeps_messages_however_old(
    monkeypatch: pytest.MonkeyPatch, policy: str | None, keeps_all: bool
) -> None:
    """An empty policy was taken for the default."""
    values = {"retention.ms": "1000", **({} if policy is None else {"cleanup.policy": policy})}
    entries = {
        name: ConfigSetting(name=name, value=value, source=ConfigSource.TOPIC)
        for name, value in values.items()
    }
    monkeypatch.setattr(topic_copy, "topic_configs", lambda *_: entries)
    oldest_ms = topic_copy._oldest_ms(Cluster("x:1"), "rides")
    assert (oldest_ms is None) == keeps_all
