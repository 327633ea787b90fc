"""A whole broker on a system without the calls that only Linux has, as macOS is."""

import fcntl
import os
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from respool.testing import Broker
from support.broker_process import BrokerProcess

MISSING = (
    "fdatasync",
    "posix_fallocate",
    "posix_fadvise",
    "POSIX_FADV_WILLNEED",
    "POSIX_FADV_DONTNEED",
    "RWF_NOWAIT",
    "sched_getaffinity",
    "sendfile",
)
# F_FULLFSYNC of macOS, answered by a sync of this system.
WITHOUT = f"""
import fcntl, os, sys, time
for name in {MISSING!r}:
    delattr(os, name)
del time.CLOCK_BOOTTIME
sync, others = os.fsync, fcntl.fcntl
fcntl.F_FULLFSYNC = 51
fcntl.fcntl = lambda fd, command, *more: sync(fd) if command == 51 else others(fd, command, *more)
def refuse(fd):
    raise AssertionError("only a full sync reaches the disk here")
os.fsync = refuse
from respool.cli.main import main
sys.exit(main())
"""


class BrokerWithout(BrokerProcess):
    def command(self) -> list[str]:
        python, option, _, *arguments = super().command()
        return [python, option, WITHOUT, *arguments]


def test_a_broker_starts_stores_and_reads_again_after_restart_and_kill(tmp_path: Path) -> None:
    with BrokerWithout(tmp_path / "data", {"topic.respool.flush": "always"}) as broker:
        produce(broker.address, b"before the restart")
        broker.restart()
        produce(broker.address, b"before the kill")
        broker.kill()
        broker.start()
        assert consume(broker.address, 2) == [b"before the restart", b"before the kill"]


def test_the_broker_for_tests_works_too(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in MISSING:
        monkeypatch.delattr(os, name)
    monkeypatch.delattr(fcntl, "F_FULLFSYNC", raising=False)
    with Broker() as broker:
        produce(broker.bootstrap, b"one")
        broker.restart()
        assert consume(broker.bootstrap, 1) == [b"one"]


def produce(address: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": address, "acks": "all"})
    producer.produce("rides", value, partition=0)
    assert producer.flush(30) == 0


def consume(address: str, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "any"})
    try:
        consumer.assign([TopicPartition("rides", 0, 0)])
        messages = consumer.consume(count, timeout=30)
        assert [message.error() for message in messages] == [None] * count
        return [message.value() for message in messages]
    finally:
        consumer.close()
