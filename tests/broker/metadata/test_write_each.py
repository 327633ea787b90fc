"""Many topics in one request: few writes to the store, each topic with its own result, and no disk for empty ones."""

from typing import Any

import pytest

from broker.cluster_world import ONE, THREE, TWO, Cluster, plays
from broker.running_broker import RunningBroker
from respool.broker.metadata.topic_changes import NewTopic
from respool.model.cluster import TopicImage
from respool.model.errors import InvalidTopic, TopicAlreadyExists
from respool.ports.metadata_store import GuardFailed

MANY = 1_000


def count_writes(broker: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of keys in each write to the store from now on."""
    transact, sizes = broker.store.transact, []

    async def count(**wish: Any) -> int:
        sizes.append(len(wish["puts"]) + len(wish["deletes"]))
        return int(await transact(**wish))

    monkeypatch.setattr(broker.store, "transact", count)
    return sizes


def test_a_thousand_topics_are_two_writes_and_touch_no_other_file(
    running_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes = count_writes(running_broker, monkeypatch)
    counters, topics = running_broker.disk.counters, running_broker.broker.topics
    before = (counters.syncs, counters.folder_syncs, counters.replaced_files)
    names = [f"topic-{number}" for number in range(MANY)]

    made = running_broker.run(topics.create_each(NewTopic(name=name) for name in names))
    assert all(isinstance(one, TopicImage) for one in made.values())
    assert writes == [1_000, 1_000]
    assert all(running_broker.broker.partitions.find(name, 0).is_leading for name in names)
    assert (counters.syncs, counters.folder_syncs, counters.replaced_files) == before
    assert running_broker.produce(names[-1]) == 0

    writes.clear()
    gone = running_broker.run(topics.delete_each(dict.fromkeys(names)))
    assert set(gone.values()) == {None}
    assert writes == [1_000, 1_000]
    assert len(running_broker.broker.partitions) == 0


def test_each_topic_has_its_own_result(running_broker: RunningBroker) -> None:
    running_broker.create_topic("there")
    names = ("new", "there", "no/name", "newer")
    made = running_broker.run(
        running_broker.broker.topics.create_each(NewTopic(name=name) for name in names)
    )
    assert isinstance(made["new"], TopicImage)
    assert isinstance(made["there"], TopicAlreadyExists)
    assert isinstance(made["no/name"], InvalidTopic)
    assert isinstance(made["newer"], TopicImage)
    assert running_broker.produce("newer") == 0


def test_a_conflict_is_decided_again_for_what_is_not_written_yet(
    running_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    transact, failures = running_broker.store.transact, [GuardFailed("as the test wants it")]

    async def fail_once(**wish: Any) -> int:
        if failures:
            raise failures.pop()
        return int(await transact(**wish))

    monkeypatch.setattr(running_broker.store, "transact", fail_once)
    topics = running_broker.broker.topics
    made = running_broker.run(topics.create_each([NewTopic(name="a"), NewTopic(name="b")]))
    assert all(isinstance(one, TopicImage) for one in made.values())


@plays(brokers=3)
async def test_a_cluster_creates_and_deletes_many_topics_in_few_writes(cluster: Cluster) -> None:
    first = cluster[ONE]
    names = [f"topic-{number}" for number in range(60)]
    made = await first.run(first.broker.topics.create_each(NewTopic(name=name) for name in names))
    assert all(isinstance(one, TopicImage) for one in made.values())
    revisions = {one.revision for one in made.values() if isinstance(one, TopicImage)}
    # Three operations each, and a hundred in a write.
    assert len(revisions) == 2
    nodes = (ONE, TWO, THREE)
    await cluster.until(
        lambda: all(set(names) <= set(cluster[one].broker.image.topics) for one in nodes)
    )
    gone = await first.run(first.broker.topics.delete_each(dict.fromkeys(names)))
    assert set(gone.values()) == {None}
    await cluster.until(
        lambda: not any(set(names) & set(cluster[one].broker.partitions.topics()) for one in nodes)
    )
