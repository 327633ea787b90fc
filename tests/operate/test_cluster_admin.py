"""A cluster as an operator sees it."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from respool.client.kafka.list_offsets import OffsetRange
from respool.operate.cluster_admin import ClusterAdmin
from respool.operate.errors import NobodyLeads
from support.scripted_cluster import ScriptedCluster


def half_led(fields: Mapping[str, Any]) -> Any:
    """One broker leads partition 0, and nobody partition 1, though the metadata name a leader."""
    (topic,) = fields["topics"]
    partitions = [
        SimpleNamespace(
            partition_index=one["partition_index"],
            error_code=(
                ErrorCode.not_leader_or_follower if one["partition_index"] else ErrorCode.none
            ),
            offset=-1 if one["partition_index"] else 7,
            timestamp=-1,
        )
        for one in topic["partitions"]
    ]
    return SimpleNamespace(topics=[SimpleNamespace(name=topic["name"], partitions=partitions)])


def test_a_leader_that_leads_no_more_is_told_in_words_or_left_out() -> None:
    cluster = ScriptedCluster(half_led)
    admin = ClusterAdmin(cluster)
    topic = admin.topic("rides")
    with pytest.raises(NobodyLeads, match=r"the partition has no leader: .* rides/1") as caught:
        admin.ranges([topic])
    assert "respool cluster status" in caught.value.hint
    assert 10 <= cluster.now < 11
    assert admin.ranges([topic], led_only=True) == {("rides", 0): OffsetRange(start=7, end=7)}
    # Without waiting.
    assert cluster.now < 11


def test_a_leader_that_goes_away_meanwhile_is_told_in_the_same_words() -> None:
    cluster = ScriptedCluster(half_led)
    admin = ClusterAdmin(cluster)
    topic = admin.topic("rides")
    cluster.topics["rides"][1] = None
    with pytest.raises(NobodyLeads, match="the partition has no leader: rides/1") as caught:
        admin.ranges([topic])
    assert "respool cluster status" in caught.value.hint
    assert cluster.now == 10
    assert list(admin.ranges([topic], led_only=True)) == [("rides", 0)]


def test_a_partition_without_a_leader_is_left_out_of_the_ranges() -> None:
    cluster = ScriptedCluster(half_led)
    cluster.topics = {"rides": {0: 1, 1: None}}
    admin = ClusterAdmin(cluster)
    assert admin.ranges(admin.topics().values()) == {("rides", 0): OffsetRange(start=7, end=7)}
    assert cluster.now == 0
