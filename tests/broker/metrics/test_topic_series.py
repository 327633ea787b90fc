from broker.cluster_world import ONE, TWO, Cluster, plays
from broker.running_broker import StartBroker
from respool.model.ids import BrokerId, Offset
from respool.replication.remote_replica import RemoteReplica
from respool.sim.runtime.simulated_metrics import SimMetrics


def test_a_follower_lags_by_what_it_has_not_and_since_it_last_had_all() -> None:
    replica = RemoteReplica(is_in_sync=False, now_ms=0)
    ask = {"broker_epoch": 1, "log_start": Offset(0)}

    def lag(end: int, now_ms: int) -> tuple[int, int | None]:
        found = replica.lag(BrokerId(2), leader_end=Offset(end), log_start=Offset(3), now_ms=now_ms)
        return found.messages, found.behind_ms

    # It has never fetched: all that is kept, and nobody knows since when.
    assert lag(10, 1_000) == (7, None)
    replica.on_fetch(log_end=Offset(10), leader_end=Offset(10), now_ms=2_000, **ask)  # type: ignore[arg-type]
    assert lag(10, 9_000) == (0, 0)
    assert lag(12, 9_000) == (2, 7_000)


def test_topics_without_series_of_their_own_are_one(start_broker: StartBroker) -> None:
    broker = start_broker(metrics_topics_allow="rides")
    for topic in ("rides", "fares", "tips"):
        broker.create_topic(topic)
        broker.produce(topic)
    broker.clock.advance(60_000)
    broker.produce("tips")
    broker.run(broker.broker.metrics.refresh())
    metrics = broker.broker.world.metrics
    assert isinstance(metrics, SimMetrics)
    assert metrics.collected("respool_topic_messages_in_total") == {("rides",): 1, ("(other)",): 3}
    sizes = metrics.collected("respool_topic_size_bytes")
    assert sizes[("(other)",)] == 3 * sizes[("rides",)]
    assert metrics.collected("respool_topic_oldest_record_age_seconds") == {
        ("rides",): 60,
        ("(other)",): 60,
    }
    assert metrics.collected("respool_partition_high_watermark") == {("rides", "0"): 1}


@plays(brokers=2)
async def test_a_leader_tells_how_far_its_followers_are(cluster: Cluster) -> None:
    await cluster.create([1, 2])
    await cluster.until_in_sync(1, 2)
    assert (await cluster.produce(b"a", at=ONE)).error_code == 0
    metrics = cluster[ONE].broker.world.metrics
    assert isinstance(metrics, SimMetrics)
    follower = ("rides", "0", "2")
    await cluster.pass_time(2_000)
    assert metrics.collected("respool_replica_lag_messages") == {follower: 0}
    assert metrics.collected("respool_replica_lag_seconds") == {follower: 0}
    cluster[TWO].kill()
    await cluster.produce(b"b", at=ONE, acks=1)
    await cluster.pass_time(5_000)
    assert metrics.collected("respool_replica_lag_messages") == {follower: 1}
    assert metrics.collected("respool_replica_lag_seconds")[follower] >= 5
