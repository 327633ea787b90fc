"""Elastic topics grow under load and shrink when it is quiet, by the controller's own measurements."""

from functools import partial
from typing import Any

import pytest

from broker.cluster_world import ONE, THREE, TWO, Cluster, plays
from broker.layouts.shrinking import change, sent
from broker.running_broker import RunningBroker
from respool.broker.layouts import elasticity
from respool.broker.layouts.elasticity import Elasticity
from respool.model.errors import InvalidConfig

STEP_MS = 10_000
SETTINGS: dict[str, Any] = {
    "respool_elastic": "on",
    "respool_elastic_pause_ms": "60000",
    "respool_elastic_target_bytes_per_second": "1000",
    "respool_elastic_max_partitions": "4",
    "respool_shrink_barrier_ms": "0",
}


@pytest.fixture
def rides(running_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> RunningBroker:
    # The tests look when they have moved the clock.
    monkeypatch.setattr(elasticity, "LOOK_S", 3_600)
    running_broker.create_topic("rides", partitions=2, **SETTINGS)
    return running_broker


def watcher(broker: RunningBroker) -> Elasticity:
    found = broker.broker.layouts._elasticity
    assert found is not None
    return found


def active(broker: RunningBroker) -> int:
    return broker.broker.image.topics["rides"].active_count


def look(broker: RunningBroker, *, minutes: float, bytes_per_s: int = 0) -> None:
    """So much is written all the time, and measured every ten seconds."""
    for _ in range(int(minutes * 60_000) // STEP_MS):
        broker.run(watcher(broker).look())
        broker.clock.advance(STEP_MS)
        if bytes_per_s:
            value = b"x" * (bytes_per_s * STEP_MS // 1000)
            sent(broker, 0, -1, value, epoch=-1, producer_id=-1)


def test_a_topic_grows_under_load_up_to_its_limit(
    rides: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="respool")
    look(rides, minutes=3, bytes_per_s=5_000)
    assert active(rides) == 4
    look(rides, minutes=3, bytes_per_s=5_000)
    assert active(rides) == 4
    (told,) = [one.message for one in caplog.records if "elastic" in one.message]
    assert told.startswith("rides: elastic, from 2 to 4 partitions: 0.0 MB/s to 2")
    assert "keys may move" in told
    assert rides.metrics.value("respool_elastic_changes_total", direction="grow") == 1


def test_a_topic_shrinks_when_it_was_quiet(rides: RunningBroker) -> None:
    look(rides, minutes=59)
    assert active(rides) == 2
    look(rides, minutes=3)
    assert active(rides) == 1
    assert len(rides.broker.image.topics["rides"].partitions) == 2
    assert rides.metrics.value("respool_elastic_changes_total", direction="shrink") == 1


def test_a_change_by_an_operator_begins_a_pause(rides: RunningBroker) -> None:
    look(rides, minutes=2, bytes_per_s=300)
    assert change(rides, 1) == (0, "")
    look(rides, minutes=1, bytes_per_s=5_000)
    assert active(rides) == 1
    look(rides, minutes=1, bytes_per_s=5_000)
    assert active(rides) == 2


def test_a_topic_without_the_setting_is_left_alone(rides: RunningBroker) -> None:
    rides.create_topic("fares", partitions=2)
    look(rides, minutes=63)
    assert rides.broker.image.topics["fares"].active_count == 2


@pytest.mark.parametrize(
    "overrides",
    [
        {"respool.elastic": "sometimes"},
        {"respool.elastic": "on", "cleanup.policy": "compact"},
        {"respool.elastic.min.partitions": "9", "respool.elastic.max.partitions": "8"},
        {"respool.elastic.pause.ms": "1"},
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    rides: RunningBroker, overrides: dict[str, str]
) -> None:
    def changed(extra: dict[str, str], _: Any) -> dict[str, str]:
        return extra

    with pytest.raises(InvalidConfig):
        rides.run(rides.broker.topics.change_overrides("rides", partial(changed, overrides)))


@plays(brokers=3)
async def test_the_controller_measures_what_other_brokers_lead(cluster: Cluster) -> None:
    await cluster.create((1,), (2,), (3,), (1,), **SETTINGS | {"respool_elastic_max_partitions": 8})
    controller = cluster[ONE].broker.image.controller
    watched = cluster[controller].broker.layouts._elasticity
    assert watched is not None
    image = cluster[controller].broker.image
    first = await cluster[controller].run(watched._sizes(image.topics["rides"]))
    for number, leader in enumerate((ONE, TWO, THREE, ONE)):
        await cluster.produce(b"x" * 1_000, at=leader, number=number)
    then = await cluster[controller].run(watched._sizes(image.topics["rides"]))
    assert {number: leader for number, (leader, _) in then.items()} == {0: 1, 1: 2, 2: 3, 3: 1}
    assert all(then[one][1] - first[one][1] > 1_000 for one in range(4))
    cluster[next(one for one in (TWO, THREE) if one != controller)].kill()
    assert await cluster[controller].run(watched._sizes(image.topics["rides"])) is None
