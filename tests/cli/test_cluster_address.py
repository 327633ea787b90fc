"""By what a command finds its cluster, and what it tells somebody to type next."""

from pathlib import Path

import pytest

from respool.cli.cluster import cluster_address
from respool.model.operator_errors import NotFound, UsageError
from respool.operate.cluster_store import ClusterAddress


def address(
    *, etcd: str | None = None, config: Path | None = None, pairs: list[str] | None = None
) -> ClusterAddress:
    return cluster_address(
        etcd=etcd, cluster="rides", config=config, insecure=False, settings=pairs
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "my broker.toml"
    file.write_text('etcd = "10.0.0.1:2379"\ninsecure = true\n')
    return file


def test_what_is_to_be_typed_finds_the_same_cluster(file: Path) -> None:
    found = address(config=file, pairs=["session_ttl_ms=9000"])
    assert found.settings.metadata_store.addresses == "10.0.0.1:2379"
    assert found.command("drain", 3) == (
        f"respool cluster drain 3 --config '{file}' --cluster rides --set session_ttl_ms=9000"
    )


def test_a_password_is_not_shown_to_who_reads_what_is_to_be_typed() -> None:
    pairs = ["etcd_user=ops", "etcd_password=hunter2"]
    found = address(etcd="127.0.0.1:2379", pairs=pairs)
    assert found.settings.metadata_store.password == "hunter2"
    assert "hunter2" not in found.command("status")
    assert "--set etcd_user=ops --set etcd_password=..." in found.command("status")


def test_where_etcd_was_said_is_named(file: Path) -> None:
    by_flag = address(etcd="127.0.0.1:2379", config=file)
    assert by_flag.etcd_origin({}) == "--etcd 127.0.0.1:2379"
    by_file = address(config=file)
    assert by_file.etcd_origin({}) == f'etcd = "10.0.0.1:2379" in {file}'
    assert by_file.etcd_origin({"RESPOOL_ETCD": "x"}) == "RESPOOL_ETCD=10.0.0.1:2379"


def test_what_does_not_lead_to_a_cluster_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RESPOOL_ETCD", raising=False)
    with pytest.raises(UsageError, match="which cluster"):
        cluster_address(etcd=None, cluster=None, config=None, insecure=False, settings=None)
    with pytest.raises(UsageError, match="by a flag and by --set"):
        address(etcd="127.0.0.1:2379", pairs=["etcd=127.0.0.1:2380"])
    with pytest.raises(NotFound, match="no settings file"):
        address(config=tmp_path / "none.toml")
