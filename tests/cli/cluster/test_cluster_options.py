"""By what a command finds its cluster, and what it tells somebody to type next."""

from pathlib import Path

import pytest

from respool.cli.cluster.cluster_options import cluster_address, cluster_and_brokers
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


def test_commands_to_type_repeat_how_to_reach_brokers_where_they_ask_them(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("hunter2\n")
    found = cluster_and_brokers(
        etcd="127.0.0.1:2379",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-512",
        username="ops",
        password_file=password,
    )
    assert found.security.login is not None
    assert found.security.login.password == "hunter2"
    assert found.command("status") == (
        "respool cluster status --etcd 127.0.0.1:2379 --security-protocol SASL_PLAINTEXT "
        f"--sasl-mechanism SCRAM-SHA-512 --username ops --password-file {password}"
    )
    # It asks etcd only, and has no such options.
    assert found.command("remove", 3) == "respool cluster remove 3 --etcd 127.0.0.1:2379"
    assert "--username" not in found.join_flags


def test_a_client_config_says_how_to_reach_brokers_and_etcd_where_they_are(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("client.id=ops\nrequest.timeout.ms=5000\nsecurity.protocol=SSL\n")
    found = cluster_and_brokers(etcd="127.0.0.1:2379", client_config=file)
    assert found.security.tls is not None
    assert found.client == {"client_id": "ops", "request_timeout_ms": 5_000}
    assert f"--client-config {file}" in found.command("drain", 3)
