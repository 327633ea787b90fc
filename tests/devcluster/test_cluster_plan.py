"""What `respool cluster up` is to run, before anything runs."""

from pathlib import Path
from typing import Any

import pytest

from respool.devcluster.cluster_plan import ClusterPlan, plan_cluster
from respool.model.operator_errors import OperatorError, UsageError
from respool.node.config import load_settings


def planned(folder: Path, *, brokers: int = 3, **more: Any) -> ClusterPlan:
    asked = {"listen": "127.0.0.1:9092", "etcd": None, "given": {}, **more}
    return plan_cluster(broker_count=brokers, folder=folder, **asked)


def test_brokers_have_folders_and_ports_one_after_the_other(tmp_path: Path) -> None:
    plan = planned(tmp_path, brokers=2, listen="[::1]:9092")
    assert [(one.id, one.listen) for one in plan.brokers] == [(1, "[::1]:9092"), (2, "[::1]:9093")]
    assert [one.data for one in plan.brokers] == [tmp_path / "broker-1", tmp_path / "broker-2"]


def test_port_0_is_a_free_one_for_each(tmp_path: Path) -> None:
    plan = planned(tmp_path, listen="127.0.0.1:0")
    assert {one.listen for one in plan.brokers} == {"127.0.0.1:0"}


def test_brokers_that_listen_everywhere_advertise_one_host_and_their_own_ports(
    tmp_path: Path,
) -> None:
    given = {"insecure": "true"}
    plan = planned(tmp_path, listen="0.0.0.0:9092", advertised="desk.example", given=given)
    assert [one.own_flags["listen"] for one in plan.brokers][:2] == ["0.0.0.0:9092", "0.0.0.0:9093"]
    assert {one.own_flags["advertised"] for one in plan.brokers} == {"desk.example:0"}
    plan.write_file()
    assert (
        load_settings(file=plan.file, environ={}, flags={}).network.advertised == "desk.example:0"
    )
    assert all("advertised" not in one.own_flags for one in planned(tmp_path).brokers)


def test_racks_are_given_out_one_after_the_other_and_round_again(tmp_path: Path) -> None:
    plan = planned(tmp_path, brokers=3, racks=["east", "west"])
    assert [one.own_flags["rack"] for one in plan.brokers] == ["east", "west", "east"]
    assert all("rack" not in one.own_flags for one in planned(tmp_path).brokers)


def test_one_rack_for_all_is_refused_and_the_flag_for_it_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        planned(tmp_path, given={"rack": "east"})
    assert "--racks" in caught.value.hint


@pytest.mark.parametrize(("brokers", "min_isr"), [(1, 1), (2, 1), (3, 2), (5, 2)])
def test_three_copies_of_which_one_may_be_missing_are_the_default(
    tmp_path: Path, brokers: int, min_isr: int
) -> None:
    settings = planned(tmp_path, brokers=brokers).settings
    assert settings.topic_defaults.min_insync_replicas == min_isr
    assert settings.topics.default_replication_factor == min(3, brokers)


def test_what_is_set_wins_over_what_suits_a_cluster(tmp_path: Path) -> None:
    given = {"topic.min.insync.replicas": "1", "num_partitions": "6"}
    settings = planned(tmp_path, given=given).settings
    assert settings.topic_defaults.min_insync_replicas == 1
    assert settings.topics.num_partitions == 6


def test_without_one_of_three_brokers_there_are_two_copies(tmp_path: Path) -> None:
    plan = planned(tmp_path, given={"num_partitions": "6"}).with_etcd("127.0.0.1:7").without([2])
    assert [(one.id, one.listen) for one in plan.brokers] == [
        (1, "127.0.0.1:9092"),
        (3, "127.0.0.1:9094"),
    ]
    assert plan.settings.topics.default_replication_factor == 2
    assert plan.settings.topic_defaults.min_insync_replicas == 1
    assert (plan.settings.metadata_store.addresses, plan.settings.topics.num_partitions) == (
        "127.0.0.1:7",
        6,
    )
    assert plan.settings.metadata_store.allow_old_versions


def test_the_file_it_writes_leads_other_commands_to_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RESPOOL_ETCD", "production.example:2379")
    monkeypatch.setenv("RESPOOL_DATA", "/elsewhere")
    plan = planned(tmp_path, given={"etcd_user": "u", "etcd_password": "of-the-cluster"}).with_etcd(
        "127.0.0.1:7"
    )
    plan.write_file()
    assert "of-the-cluster" not in plan.file.read_text()
    assert plan.environ["RESPOOL_ETCD_PASSWORD"] == "of-the-cluster"
    assert "RESPOOL_ETCD" not in plan.environ
    read = load_settings(
        file=plan.file, environ={"RESPOOL_ETCD_PASSWORD": "of-the-cluster"}, flags={}
    )
    assert read.metadata_store.endpoints == ("http://127.0.0.1:7",)
    assert read.metadata_store.allow_old_versions
    assert read.topic_defaults.min_insync_replicas == 2
    assert read.data == "./respool-data"


def test_an_etcd_that_is_given_must_be_of_a_good_version(tmp_path: Path) -> None:
    settings = planned(tmp_path, etcd="127.0.0.1:5").settings
    assert settings.metadata_store.addresses == "127.0.0.1:5"
    assert not settings.metadata_store.allow_old_versions


def test_brokers_that_have_data_and_are_not_asked_for_are_left_out(tmp_path: Path) -> None:
    for name in ("broker-1", "broker-2", "broker-10", "broker-2.log", "broker-x"):
        (tmp_path / name).mkdir()
    assert planned(tmp_path, brokers=1).left_out == (2, 10)
    assert planned(tmp_path, brokers=10).left_out == ()


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"given": {"listen": "x:1"}}, "listen"),
        ({"given": {"etcd": "x:1"}}, "--set etcd"),
        ({"given": {"nonsense": "1"}}, "nonsense"),
        ({"listen": "nowhere"}, "HOST:PORT"),
        ({"listen": "0.0.0.0:9092"}, "insecure"),
        ({"listen": "0.0.0.0:9092", "given": {"insecure": "true"}}, "--advertised"),
        ({"listen": "127.0.0.1:65534"}, "3 ports"),
    ],
)
def test_what_cannot_be_is_told_and_nothing_is_made(
    tmp_path: Path, more: dict[str, Any], told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        planned(tmp_path / "new", **more)
    assert not (tmp_path / "new").exists()


def test_a_file_in_the_folder_s_place_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OperatorError, match="not a folder"):
        planned(tmp_path / "file")
