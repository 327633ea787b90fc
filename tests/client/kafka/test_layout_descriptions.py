"""What the client learns of topics that were shrunk."""

from collections.abc import Iterator

import pytest

from respool.client.kafka import layout_descriptions
from respool.client.kafka.admin import change_layout
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.errors import UnknownTopic
from respool.client.kafka.layout_descriptions import TopicLayout, describe_layout
from respool.wire.layout_change import LayoutChangeKind
from support.quick_broker import quick_broker


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with quick_broker() as running:
        running.create_topic("rides", partitions=6)
        with Cluster(running.bootstrap, retry_ms=5_000) as made:
            yield made


def test_the_layout_is_put_together_from_all_pages(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout_descriptions, "PARTITIONS_PER_PAGE", 2)
    assert describe_layout(cluster, "rides") is None
    change_layout(cluster, "rides", LayoutChangeKind.SHRINK, count=2)
    described = cluster.retrying(lambda: describe_layout(cluster, "rides"))
    assert described == TopicLayout(
        active=2, named=6, listed=6, sealed_ends={2: 0, 3: 0, 4: 0, 5: 0}
    )
    change_layout(cluster, "rides", LayoutChangeKind.RETIRE)
    assert describe_layout(cluster, "rides") == TopicLayout(active=2, named=6, listed=2)


def test_there_is_no_layout_of_a_missing_topic(cluster: Cluster) -> None:
    with pytest.raises(UnknownTopic):
        describe_layout(cluster, "nowhere")
