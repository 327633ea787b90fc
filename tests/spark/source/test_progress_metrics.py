"""A query's progress is a group's position, so its lag is among the broker's metrics. Without Spark itself."""

from confluent_kafka import Producer

from respool.client.kafka.cluster import Cluster
from respool.spark.source.group_progress import GroupProgress
from respool.spark.source.stream_offset import TopicAt
from respool.testing import Broker
from support.exposition import scrape, value


def test_a_querys_lag_is_among_the_metrics() -> None:
    settings = {"metrics_listen": "127.0.0.1:0", "metrics_lag_interval_ms": 1000}
    with Broker(settings=settings, topics={"rides": 1}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for _ in range(3):
            producer.produce("rides", b"x", timestamp=broker.clock.now_ms)
            producer.flush()
            broker.clock.advance(minutes=1)
        with Cluster(broker.bootstrap) as cluster:
            assert GroupProgress("fare-job").show(cluster, {"rides": TopicAt(None, {0: 1})})
        labels = {"group": "fare-job", "topic": "rides", "partition": "0"}
        url = broker.metrics_url
        assert url is not None
        lag = None
        while lag is None:
            broker.clock.advance(seconds=1)
            lag = value(scrape(url), "respool_group_lag_messages", **labels)
        assert lag == 2
        seconds = value(scrape(url), "respool_group_lag_seconds", **labels)
        assert seconds is not None
        assert seconds >= 120
