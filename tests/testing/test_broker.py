"""A broker inside a test: how it comes, goes, and says what is wrong."""

import logging
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer  # type: ignore[import-untyped,unused-ignore]
from kafka import KafkaProducer  # type: ignore[import-untyped,unused-ignore]

from respool.testing import (
    Broker,
    BrokerClosed,
    BrokerDidNotStart,
    BrokerFailed,
    BrokerForked,
    BrokerNotRunning,
    BrokerRunning,
    PortTaken,
    TestBrokerError,
)
from testing.riding import offsets_of, producer, send, values_in

MODES = ["thread", "process"]


def test_any_client_connects_to_it(broker: Broker) -> None:
    broker.create_topic("rides")
    assert send(producer(broker), "rides", "one") == [None]
    other = KafkaProducer(bootstrap_servers=broker.bootstrap)
    other.send("rides", b"two").get(20)
    other.close()

    assert values_in(broker, "rides") == ["one", "two"]


@pytest.mark.parametrize("mode", MODES)
def test_topics_and_settings_are_there_from_the_start(mode: str) -> None:
    topics = {"rides": 6, "fares": {"partitions": 2, "retention.ms": 3_600_000}}
    with Broker(topics=topics, settings={"num_partitions": 3}, mode=mode) as broker:  # type: ignore[arg-type]
        client = producer(broker)
        partitions = {
            name: len(client.list_topics(name, timeout=20).topics[name].partitions)
            for name in ("rides", "fares", "made-by-the-client")
        }

    assert partitions == {"rides": 6, "fares": 2, "made-by-the-client": 3}


def test_a_topic_takes_kafkas_settings_and_refuses_what_respool_cannot_do(broker: Broker) -> None:
    broker.create_topic("kept", cleanup_policy="", flush_ms=2000, remote_storage_enable="false")
    with pytest.raises(TestBrokerError, match=r"remote\.storage\.enable = true needs an archive"):
        broker.create_topic("tiered", remote_storage_enable="true")


@pytest.mark.parametrize("mode", MODES)
def test_a_temporary_folder_goes_with_it_and_a_given_one_stays(mode: str, tmp_path: Path) -> None:
    with Broker(mode=mode) as broker:  # type: ignore[arg-type]
        folder = Path(broker.data)
        assert folder.is_dir()
    assert not folder.exists()

    with Broker(mode=mode, data=tmp_path / "kept", topics={"rides": 1}) as broker:  # type: ignore[arg-type]
        send(producer(broker), "rides", "one")
    with Broker(mode=mode, data=tmp_path / "kept", topics={"rides": 1}) as broker:  # type: ignore[arg-type]
        assert values_in(broker, "rides") == ["one"]
    assert (tmp_path / "kept" / "rides-0").is_dir()


def test_a_restart_keeps_address_and_messages(broker: Broker) -> None:
    broker.create_topic("rides")
    client = producer(broker)
    send(client, "rides", "one")
    address = broker.bootstrap

    broker.restart()

    assert broker.bootstrap == address
    assert send(client, "rides", "two") == [None]
    assert values_in(broker, "rides") == ["one", "two"]


def test_while_it_is_stopped_its_port_refuses_and_stays_its_own(broker: Broker) -> None:
    broker.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", broker.port), timeout=5)
    with pytest.raises(BrokerNotRunning):
        broker.create_topic("rides")
    assert not broker.is_running

    broker.start()
    broker.create_topic("rides")


def test_several_run_at_once() -> None:
    with Broker(topics={"rides": 1}) as one, Broker(topics={"rides": 1}) as other:
        send(producer(one), "rides", "here")
        assert (offsets_of(one, "rides"), offsets_of(other, "rides")) == ((0, 1), (0, 0))


@pytest.mark.parametrize("mode", MODES)
def test_a_port_that_is_taken_is_told(mode: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        broker = Broker(port=port, mode=mode)  # type: ignore[arg-type]
        with pytest.raises(PortTaken, match=f"something listens on 127.0.0.1:{port} already"):
            broker.start()
    with pytest.raises(BrokerClosed):
        broker.start()


@pytest.mark.parametrize("mode", MODES)
def test_a_wrong_setting_is_told_before_anything_is_served(mode: str) -> None:
    with pytest.raises(BrokerDidNotStart, match="did you mean num_partitions"):
        Broker(settings={"num_partition": 3}, mode=mode).start()  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"listen: give the port as Broker\(port="):
        Broker(settings={"listen": "0.0.0.0:9092"})
    with pytest.raises(ValueError, match="'rides': 0 is not a number of partitions"):
        Broker(topics={"rides": 0})
    with pytest.raises(TypeError, match=r"topics = \['rides'\]: names with their partitions"):
        Broker(topics=["rides"])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="neither 'thread' nor 'process'"):
        Broker(mode="container")  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", MODES)
def test_a_topic_that_cannot_be_is_told(mode: str) -> None:
    with pytest.raises(BrokerDidNotStart, match=r"'rides' cannot be created.*retention"):
        Broker(topics={"rides": {"retention.msss": 1}}, mode=mode).start()  # type: ignore[arg-type]


def test_a_child_that_does_not_start_shows_its_log(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "metadata.sqlite").write_text("this is no database, it is a text")
    with pytest.raises(BrokerDidNotStart, match=r"metadata.sqlite is not a metadata store"):
        Broker(data=tmp_path / "data", mode="process").start()


def test_a_broker_runs_once_and_is_closed_for_good() -> None:
    broker = Broker()
    with pytest.raises(BrokerNotRunning):
        _ = broker.bootstrap
    with pytest.raises(BrokerNotRunning):
        broker.clock.advance(seconds=1)
    with broker:
        with pytest.raises(BrokerRunning, match="runs already"), broker:
            pass
        assert broker.is_running
    for use in (broker.start, broker.stop, broker.crash, broker.faults.drop_connections):
        with pytest.raises(BrokerClosed):
            use()
    broker.close()
    assert "closed" in repr(broker)


def test_a_failing_test_is_shown_as_itself_and_the_broker_ends_all_the_same() -> None:
    broker = Broker()
    with pytest.raises(ZeroDivisionError), broker:
        _ = 1 / 0
    assert not Path(broker.data).exists()


def test_a_child_that_was_killed_is_told_with_its_log() -> None:
    broker = Broker(mode="process").start()
    backend = broker._backend
    assert backend is not None
    os.kill(backend.pid, signal.SIGKILL)  # type: ignore[attr-defined]
    with pytest.raises(BrokerFailed, match=r"ended with -9(?s:.*)INFO"):
        broker.clock.advance(seconds=1)
    broker.close()


def test_a_broken_invariant_is_told_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise AssertionError("as the test wants it")

    broker = Broker(topics={"rides": 1}).start()
    monkeypatch.setattr("respool.testing.request_faults.handle", broken)
    with socket.create_connection(("127.0.0.1", broker.port), timeout=20) as client:
        # ApiVersions, version 0, without a client id.
        client.sendall(bytes.fromhex("0000000a 0012 0000 00000001 ffff"))
        assert client.recv(100) == b""
    with pytest.raises(BrokerFailed, match="stopped by itself"):
        broker.close()
    assert not Path(broker.data).exists()


def test_a_child_ends_when_whoever_started_it_is_gone() -> None:
    script = (
        "import os, sys; from respool.testing import Broker\n"
        "broker = Broker(mode='process').start()\n"
        "print(broker._backend.pid, broker.data, flush=True)\n"
        "os.kill(os.getpid(), 9)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    pid, _ = done.stdout.split()
    gone = threading.Event()
    for _ in range(400):
        if not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text():
            break
        gone.wait(0.05)
    else:
        pytest.fail("the child lives on")


def test_one_that_nobody_closed_is_closed_with_the_process() -> None:
    script = (
        "from respool.testing import Broker\n"
        "for mode in ('thread', 'process'):\n"
        "    kept = globals().setdefault(mode, Broker(mode=mode).start())\n"
        "    print(kept.data, flush=True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert not done.stderr
    assert [Path(one).exists() for one in done.stdout.split()] == [False, False]


@pytest.mark.parametrize("mode", MODES)
def test_a_process_that_was_forked_off_may_only_know_the_address(mode: str) -> None:
    with Broker(mode=mode, topics={"rides": 1}) as broker:  # type: ignore[arg-type]
        client = socket.create_connection(("127.0.0.1", broker.port), timeout=20)
        fork = multiprocessing.get_context("fork")
        answers, orders = fork.Queue(), fork.Event()
        child = fork.Process(target=_life_of_a_fork, args=(broker, answers, orders))
        child.start()
        assert answers.get(timeout=20) == (broker.bootstrap, BrokerForked.__name__)
        # The fork lives, and holds none of the broker's sockets, nor its folder.
        broker.faults.drop_connections()
        assert client.recv(1) == b""
        client.close()
        broker.stop()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", broker.port), timeout=5)
        broker.start()
        assert send(producer(broker), "rides", "one") == [None]
        orders.set()
        child.join(20)
        assert child.exitcode == 0
        assert Path(broker.data).is_dir()


def _life_of_a_fork(
    broker: Broker, answers: "multiprocessing.Queue[object]", orders: object
) -> None:
    try:
        broker.clock.advance(days=1)
    except BrokerForked as error:
        answers.put((broker.bootstrap, type(error).__name__))
    broker.close()
    orders.wait(30)  # type: ignore[attr-defined]


async def _send_with_aiokafka(address: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=address) as client:
        await client.send_and_wait("rides", b"one")


def test_it_works_beside_a_loop_of_the_tests_own() -> None:
    import asyncio

    async def story() -> None:
        with Broker(topics={"rides": 1}) as broker:
            await _send_with_aiokafka(broker.bootstrap)
            assert offsets_of(broker, "rides") == (0, 1)

    asyncio.run(story())


def test_it_leaves_the_users_logging_alone(caplog: pytest.LogCaptureFixture) -> None:
    before = logging.getLogger("respool").level
    with Broker(topics={"rides": 1}) as broker:
        send(producer(broker), "rides", "one")
        broker.crash()
        broker.start()
        broker.restart()
    assert logging.getLogger("respool").level == before
    assert not logging.getLogger("respool").handlers
    assert not logging.getLogger("asyncio").handlers
    assert caplog.records == []


def test_a_topic_that_is_there_already_is_told(broker: Broker) -> None:
    broker.create_topic("rides")
    with pytest.raises(TestBrokerError, match="'rides' cannot be created"):
        broker.create_topic("rides", partitions=2)


def test_new_topics_have_names_of_their_own(broker: Broker) -> None:
    names = [broker.new_topic("rides", partitions=2, retention_ms=1000) for _ in range(3)]
    assert len(set(names)) == 3
    assert all(name.startswith("rides-") for name in names)
