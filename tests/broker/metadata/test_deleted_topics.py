"""Topics deleted a moment ago: remembered for a while, and not without bound."""

import pytest

from broker.cluster_world import ONE, THREE, TWO, Cluster, plays
from respool.broker.metadata import deleted_topics
from respool.broker.metadata.deleted_topics import NOT_CREATED_MS, DeletedTopics
from respool.wire.api_table import Api
from support.sim_clock import SimClock

UNKNOWN_TOPIC = 3


def test_a_deletion_is_remembered_for_ten_seconds() -> None:
    clock = SimClock()
    deleted = DeletedTopics(clock)
    deleted.on_deleted("rides")
    assert "rides" in deleted
    assert "others" not in deleted
    clock.advance(NOT_CREATED_MS - 1)
    assert "rides" in deleted
    clock.advance(1)
    assert "rides" not in deleted


def test_what_is_deleted_again_is_remembered_from_then_on() -> None:
    clock = SimClock()
    deleted = DeletedTopics(clock)
    deleted.on_deleted("rides")
    clock.advance(NOT_CREATED_MS - 1)
    deleted.on_deleted("rides")
    clock.advance(NOT_CREATED_MS - 1)
    assert "rides" in deleted
    deleted.forget("rides")
    assert "rides" not in deleted


def test_neither_old_deletions_nor_many_take_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deleted_topics, "TOPICS_MAX", 3)
    clock = SimClock()
    deleted = DeletedTopics(clock)
    for number in range(5):
        deleted.on_deleted(f"t-{number}")
    assert [f"t-{number}" in deleted for number in range(5)] == [False, False, True, True, True]
    clock.advance(NOT_CREATED_MS)
    deleted.on_deleted("last")
    assert len(deleted) == 1


@plays(brokers=3)
async def test_no_broker_of_a_cluster_creates_again_what_another_deleted(cluster: Cluster) -> None:
    await cluster.create((1, 2), topic="short")
    first = cluster[ONE]
    await first.run(first.broker.topics.delete("short"))
    await cluster.until(
        lambda: all("short" not in cluster[n].broker.image.topics for n in (ONE, TWO, THREE))
    )
    wish = [{"name": "short", "topic_id": None}]
    for number in (ONE, TWO, THREE):
        reply = await cluster[number].ask(
            Api.METADATA,
            12,
            topics=wish,
            allow_auto_topic_creation=True,
            include_topic_authorized_operations=False,
        )
        assert reply.topics[0].error_code == UNKNOWN_TOPIC
