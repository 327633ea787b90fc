"""Any order of shrinks and growths: each partition has one heir, in its family, and its history is known."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.cluster.layout_requests import relaid, retire_topic
from respool.cluster.view import ClusterView
from respool.model.cluster import NO_CONTROLLER, ClusterImage, PartitionImage, TopicImage
from respool.model.ids import BrokerId, LeaderEpoch, TopicId
from respool.model.layouts.partition_layout import PartitionLayout, divisors
from respool.model.topic_config import TopicConfig
from respool.records.producer_alias import ALIAS_BIT, producer_alias

ONE = BrokerId(1)
ALONE = PartitionImage(replicas=(ONE,), isr=(ONE,), leader=ONE, leader_epoch=LeaderEpoch(0))


def topic_of(count: int, layout: PartitionLayout | None) -> TopicImage:
    return TopicImage(
        name="t",
        id=TopicId(UUID(int=1)),
        partitions=(ALONE,) * count,
        overrides={},
        config=TopicConfig(),
        layout=layout,
    )


@given(
    first=st.integers(1, 24),
    counts=st.lists(st.integers(1, 24), min_size=1, max_size=8),
    key_hash=st.integers(0, 2**32),
)
def test_a_partition_has_one_heir_and_its_batches_lie_in_its_lineage(
    first: int, counts: list[int], key_hash: int
) -> None:
    layout: PartitionLayout | None = None
    has_been: dict[int, set[int]] = {number: {number} for number in range(first)}
    present = first
    for count in counts:
        if count == (present if layout is None else layout.active):
            continue
        before = layout or PartitionLayout.unchanged(present)
        layout = relaid(topic_of(present, layout), count)
        present = max(present, count)
        assert layout.epoch == before.epoch + 1
        for number in range(layout.named):
            heir = layout.heir(number)
            assert heir == number % count if number >= count else heir == number
            assert not layout.is_sealed(heir)
            assert layout.root(number) == layout.root(heir)
            has_been.setdefault(number, {number}).add(heir)
            assert has_been[number] <= {*layout.lineage(number)}
            assert {layout.root(one) for one in layout.lineage(number)} == {layout.root(number)}
        taken = [(number, layout.heir_before(number)) for number in range(layout.named)]
        for heir in range(layout.active):
            from_where = {source for number, source in taken if layout.heir(number) == heir}
            assert layout.sources(heir) == from_where - {heir}
    assert key_hash >= 0


@given(count=st.integers(1, 200), key_hash=st.integers(0, 2**32))
def test_divisors_keep_a_key_in_one_partition_for_clients_that_count_differently(
    count: int, key_hash: int
) -> None:
    for fewer in divisors(count):
        layout = relaid(topic_of(count, None), fewer)
        assert layout.heir(key_hash % count) == key_hash % fewer


def test_retired_partitions_begin_with_a_later_epoch_when_the_topic_grows_again() -> None:
    layout = relaid(topic_of(4, None), 2)
    topic = topic_of(4, layout)
    image = ClusterImage(cluster_id="c", brokers={}, controller=NO_CONTROLLER, topics={"t": topic})
    first, *deletions = retire_topic(ClusterView(image=image, controller_revision=0), topic)
    assert b'"first_epoch":1' in first.puts["/topics/t"]
    assert [key[-2:] for one in deletions for key in one.deletes] == ["/2", "/3"]


@pytest.mark.parametrize("producer_id", [0, 4_711, 2**62 - 1])
def test_an_alias_is_no_id_that_a_broker_hands_out(producer_id: int) -> None:
    aliases = {producer_alias(UUID(int=7), number, producer_id) for number in range(1_000)}
    assert len(aliases) == 1_000
    assert all(ALIAS_BIT <= one < 2**63 for one in aliases)
