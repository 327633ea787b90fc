"""What keeps a broker from starting, in words."""

import errno
import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from respool.drivers.etcd_failures import EtcdRefused
from respool.drivers.local_disk import LocalDisk
from respool.drivers.sqlite_file import SqliteFile
from respool.log.folder.clean_marker import CLEAN_MARKER
from respool.log.folder.data_folder import RUN_NAME
from respool.log.folder.folder_identity import IDENTITY_NAME, FolderIdentity, refuse_kafkas_folder
from respool.model.errors import DataFolderMismatch
from respool.model.ids import BrokerId
from respool.model.settings import Settings
from respool.node.node import (
    EXIT_UNREACHABLE,
    METADATA_FILE,
    refuse_folder_of_a_broker_alone,
    refuse_folder_of_a_cluster,
    run,
)
from support.broker_process import BrokerProcess


@pytest.fixture(autouse=True)
def _own_signal_handlers() -> Iterator[None]:
    """A broker keeps its handlers until its process ends, so that a second SIGTERM does not kill it."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_broker_that_is_to_join_a_cluster_does_not_serve_alone_instead(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    settings = Settings.from_flat(
        data=str(data), listen="127.0.0.1:0", etcd="127.0.0.1:9", etcd_wait_ms=0
    )

    assert run(settings) == EXIT_UNREACHABLE

    assert "no etcd member replies" in capsys.readouterr().err
    assert not (data / METADATA_FILE).exists()


def test_an_etcd_that_answers_and_refuses_is_not_taken_for_one_that_is_away(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An etcd that is too old ended `serve` with 4 and `cluster status` with 1."""

    async def refuse(*_: object, **__: object) -> NoReturn:
        raise EtcdRefused("etcd is version 3.5.1")

    monkeypatch.setattr("respool.node.node.connect_to_etcd", refuse)
    settings = Settings.from_flat(data=str(tmp_path), listen="127.0.0.1:0", etcd="127.0.0.1:9")
    assert run(settings) == 1
    assert "etcd is version 3.5.1" in capsys.readouterr().err


def test_the_first_line_tells_a_crash_from_the_first_time(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        broker.wait_for_log("opened for the first time")
        broker.kill()
        broker.start()
        broker.wait_for_log("opened after a crash")
        broker.restart()
        broker.wait_for_log("opened after a clean stop")


def test_metadata_has_the_advertised_host_and_the_bound_port_and_every_log_line_is_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RESPOOL_LISTENS", "127.0.0.1:1")
    settings = {"advertised": "localhost:0", "log_format": "json"}
    with BrokerProcess(tmp_path / "data", settings) as broker:
        admin = AdminClient({"bootstrap.servers": broker.address})
        [endpoint] = admin.list_topics(timeout=30).brokers.values()
        assert (endpoint.host, endpoint.port) == ("localhost", broker.port)
        broker.wait_for_log(f"advertised to clients as localhost:{broker.port}")
    lines = [json.loads(line) for line in broker.log.splitlines()]
    assert {frozenset(line) for line in lines} == {
        frozenset(("time", "level", "logger", "message"))
    }
    [warning] = [line["message"] for line in lines if line["level"] == "warning"]
    assert warning.startswith("environment variable RESPOOL_LISTENS is ignored")


def test_a_refused_start_is_a_json_line_where_the_log_is_json(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("respool.node.node.set_up_logging", lambda **_: None)
    (tmp_path / "file").touch()
    settings = Settings.from_flat(
        data=str(tmp_path / "file"), listen="127.0.0.1:0", log_format="json", log_level="info"
    )
    assert run(settings) == 1
    assert "is not a folder" in caplog.text
    assert "is not a folder" not in capsys.readouterr().err


def test_a_start_that_is_refused_does_not_make_a_crash_of_a_clean_stop(tmp_path: Path) -> None:
    """A port that is taken cost a look at every log, and in a cluster the broker's place in the ISR."""
    with BrokerProcess(tmp_path / "data") as broker:
        admin = AdminClient({"bootstrap.servers": broker.address})
        [made] = admin.create_topics([NewTopic("rides", 2)]).values()
        made.result(30)
        broker.stop()
        before = (tmp_path / "data" / CLEAN_MARKER).read_bytes()
        with socket.create_server(("127.0.0.1", 0)) as taken:
            listen = f"127.0.0.1:{taken.getsockname()[1]}"
            assert run(Settings.from_flat(data=str(tmp_path / "data"), listen=listen)) == 1
        assert (tmp_path / "data" / CLEAN_MARKER).read_bytes() == before
        broker.start()
        broker.wait_for_log("opened after a clean stop")


@pytest.mark.parametrize("left", ["no", "a new and empty"])
def test_partitions_without_the_metadata_that_names_their_topics_are_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], left: str
) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        admin = AdminClient({"bootstrap.servers": broker.address})
        [made] = admin.create_topics([NewTopic("rides", 2)]).values()
        made.result(30)
        # A partition has a folder from its first record on.
        producer = Producer({"bootstrap.servers": broker.address})
        producer.produce("rides", b"requested", partition=0)
        assert producer.flush(30) == 0
    for path in (tmp_path / "data").glob("metadata.sqlite*"):
        path.unlink()
    if left == "a new and empty":
        SqliteFile(str(tmp_path / "data" / "metadata.sqlite")).close()
    before = sorted(tmp_path.rglob("*"))

    assert run(Settings.from_flat(data=str(tmp_path / "data"), listen="127.0.0.1:0")) == 1

    error = capsys.readouterr().err
    assert f"holds partitions, such as rides-0, but {left} metadata.sqlite" in error
    assert "restore that file" in error
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("listen", "data", "words"),
    [
        ("nowhere.invalid:9092", "data", "nowhere.invalid:9092 cannot be listened on: "),
        ("192.0.2.1:9092", "data", "192.0.2.1:9092 is not an address of this machine"),
        ("127.0.0.1:0", "/proc/none/data", "the data folder /proc/none/data cannot be made"),
        ("127.0.0.1:0", "file", "is not a folder"),
    ],
)
def test_what_cannot_be_listened_on_or_written_to_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], listen: str, data: str, words: str
) -> None:
    """A number and three words of the system's were all that was told."""
    (tmp_path / "file").touch()
    assert run(Settings.from_flat(data=str(tmp_path / data), listen=listen, insecure=True)) == 1
    error = capsys.readouterr().err
    assert words in error
    assert "choose another with --" in error


def test_an_address_that_is_not_allowed_is_not_taken_for_the_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*_: object) -> NoReturn:
        # What the loop raises for a port below 1024.
        raise PermissionError(errno.EACCES, "error while attempting to bind on ('127.0.0.1', 80)")

    monkeypatch.setattr("respool.node.node._serve_until_stopped", refused)
    assert run(Settings.from_flat(data=str(tmp_path / "data"), listen="127.0.0.1:80")) == 1
    error = capsys.readouterr().err
    assert "attempting to bind" in error
    assert "--data" not in error


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """As a broker of a cluster leaves it."""
    (tmp_path / RUN_NAME).write_text("0" * 32)
    identity = FolderIdentity(cluster_id="c", broker_id=BrokerId(3))
    (tmp_path / IDENTITY_NAME).write_bytes(identity.encode())
    return tmp_path


@pytest.mark.parametrize("partition", ["rides-0", None])
def test_the_folder_of_a_clusters_broker_is_not_served_alone(
    folder: Path, capsys: pytest.CaptureFixture[str], partition: str | None
) -> None:
    """It asked for a metadata.sqlite that there never was; or, where nothing was held, made one."""
    if partition is not None:
        (folder / partition).mkdir()
    assert (
        run(Settings.from_flat(data=str(folder), listen="127.0.0.1:0", broker_id=BrokerId(3))) == 1
    )
    error = capsys.readouterr().err
    assert "the data folder is that of broker 3 of a cluster" in error
    assert "--etcd and --cluster" in error
    assert not (folder / METADATA_FILE).exists()


@pytest.mark.parametrize("is_formatted", [True, False])
def test_the_folder_of_a_kafka_is_named_as_such_and_left_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], is_formatted: bool
) -> None:
    """It was taken for one of Respool's, and asked for the Respool version that wrote it, or for a metadata.sqlite."""
    (tmp_path / "rides-0").mkdir()
    if is_formatted:
        (tmp_path / IDENTITY_NAME).write_text(
            "#\n#Mon Nov 16 09:00:00 UTC 2026\ncluster.id=abc\ndirectory.id=x\nnode.id=1\nversion=1\n"
        )
    else:
        (tmp_path / "__cluster_metadata-0").mkdir()
    assert run(Settings.from_flat(data=str(tmp_path), listen="127.0.0.1:0")) == 1
    error = capsys.readouterr().err
    assert "that of a broker of Apache Kafka, which Respool does not take over" in error
    assert "--data" in error
    assert "respool mirror" in error
    assert not (tmp_path / METADATA_FILE).exists()


def test_a_partition_of_kafkas_metadata_in_a_folder_of_ours_is_a_partition(folder: Path) -> None:
    (folder / "__cluster_metadata-0").mkdir()
    refuse_kafkas_folder(LocalDisk(str(folder)))


def test_a_broker_whose_number_is_not_written_is_told_all_the_same(folder: Path) -> None:
    (folder / IDENTITY_NAME).unlink()
    with pytest.raises(DataFolderMismatch, match="that of a broker of a cluster"):
        refuse_folder_of_a_cluster(LocalDisk(str(folder)))


def test_the_folder_of_a_broker_alone_is_no_clusters(tmp_path: Path) -> None:
    disk = LocalDisk(str(tmp_path))
    refuse_folder_of_a_cluster(disk)
    refuse_folder_of_a_broker_alone(disk)
    (tmp_path / METADATA_FILE).touch()
    refuse_folder_of_a_cluster(disk)
    with pytest.raises(DataFolderMismatch, match="that of a broker alone"):
        refuse_folder_of_a_broker_alone(disk)
