from typing import Any

import pytest

from respool.model.addresses import parse_address
from respool.model.errors import SettingsError
from respool.model.setting_fields import (
    ALIASES,
    KAFKA_NAMES,
    OLD_NAMES,
    TOPIC_DEFAULT_NAMES,
    TOPIC_DEFAULTS_IN_UNITS,
)
from respool.model.settings import SETTINGS, Settings
from respool.model.topic_config import CONFIG_RULES


def test_by_default_only_this_machine_is_listened_to() -> None:
    assert Settings().network.listen_address == ("127.0.0.1", 9092)


@pytest.mark.parametrize("listen", ["0.0.0.0:9092", "[::]:9092", "192.0.2.7:9092", "example.com:1"])
def test_other_machines_are_let_in_only_when_told_so(listen: str) -> None:
    with pytest.raises(SettingsError, match="--insecure"):
        Settings.from_flat(listen=listen)
    allowed = Settings.from_flat(listen=listen, insecure=True, advertised="broker.example:9092")
    assert allowed.network.listen_address[1] > 0


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "[0:0::0]", "[::ffff:0.0.0.0]", "0"])
def test_a_wildcard_address_is_never_advertised(host: str) -> None:
    """A broker on 0.0.0.0 advertised 0.0.0.0, which clients take for their own machine."""
    with pytest.raises(SettingsError, match=r"every interface.*--advertised"):
        Settings.from_flat(listen=f"{host}:9092", insecure=True)
    with pytest.raises(
        SettingsError, match=r"advertised = .* not an address that clients can connect"
    ):
        Settings.from_flat(advertised=f"{host}:9092")
    settings = Settings.from_flat(
        listen=f"{host}:9092", insecure=True, advertised="broker.example:19092"
    )
    assert settings.listeners[0].advertised_for("0.0.0.0", 9092) == ("broker.example", 19092)


def test_port_0_of_the_advertised_address_is_the_port_listened_on() -> None:
    settings = Settings.from_flat(listen="127.0.0.1:0", advertised="broker.example:0")
    assert settings.listeners[0].advertised_for("127.0.0.1", 40123) == ("broker.example", 40123)
    assert Settings().listeners[0].advertised_for("127.0.0.1", 40123) == ("127.0.0.1", 40123)


@pytest.mark.parametrize("listen", ["localhost:0", "127.0.0.5:80", "[::1]:9092"])
def test_loopback_addresses_are_fine(listen: str) -> None:
    assert Settings.from_flat(listen=listen)


def test_metrics_are_kept_to_this_machine_too() -> None:
    with pytest.raises(SettingsError, match="metrics_listen"):
        Settings.from_flat(metrics_listen="0.0.0.0:9100")
    assert Settings.from_flat(metrics_listen="127.0.0.1:9100").metrics.address == (
        "127.0.0.1",
        9100,
    )


@pytest.mark.parametrize("text", ["", "9092", "host:", ":9092", "host:99999", "host:-1", "host:x"])
def test_an_address_needs_host_and_port(text: str) -> None:
    with pytest.raises(SettingsError, match="HOST:PORT"):
        parse_address("listen", text)


@pytest.mark.parametrize(
    "wrong",
    [
        {"connections_max": 0},
        {"num_partitions": 0},
        {"io_threads": 0},
        {"log_level": "loud"},
        {"log_format": "xml"},
        {"memory_bytes_max": 2048, "frame_bytes_max": 4096},
        {"topic": {"retention.ms": "soon"}},
        {"topic": {"retention": "1"}},
        {"advertised": "nowhere"},
    ],
)
def test_a_setting_that_cannot_work_stops_the_start(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        Settings.from_flat(**wrong)


def test_every_setting_says_what_it_is_for() -> None:
    for item in SETTINGS.values():
        assert item.doc.endswith("."), item.name


def test_settings_are_the_same_flat_and_in_groups() -> None:
    flat: dict[str, Any] = {
        "num_partitions": 6,
        "etcd": "localhost:1",
        "etcd_password_file": "f",
        "etcd_user": "u",
    }
    settings = Settings.from_flat(**flat)
    assert settings.topics.num_partitions == 6
    assert settings.metadata_store.addresses == "localhost:1"
    changed = {
        name: value for name, value in settings.flat().items() if value != SETTINGS[name].default
    }
    assert changed == flat
    assert Settings.from_flat(**settings.flat()) == settings
    assert settings.with_flat(num_partitions=1) == Settings.from_flat(
        **flat | {"num_partitions": 1}
    )


def test_every_alias_is_another_name_of_one_setting() -> None:
    assert set(OLD_NAMES.values()) <= set(SETTINGS)
    assert set(KAFKA_NAMES) <= set(SETTINGS)
    assert {name for name, _ in TOPIC_DEFAULTS_IN_UNITS.values()} <= set(CONFIG_RULES)
    tables = (OLD_NAMES, KAFKA_NAMES, TOPIC_DEFAULT_NAMES, TOPIC_DEFAULTS_IN_UNITS)
    assert len(ALIASES) == sum(map(len, tables))
    assert not set(ALIASES) & set(SETTINGS)


# -- etcd --------------------------------------------------------------------------------------------------------------


def test_without_etcd_there_is_a_single_broker() -> None:
    assert Settings().metadata_store.endpoints == ()


def test_files_for_tls_mean_https_where_nothing_else_is_said() -> None:
    assert Settings.from_flat(etcd="a:1", etcd_ca_file="ca.pem").metadata_store.endpoints == (
        "https://a:1",
    )
    assert Settings.from_flat(etcd="localhost:1").metadata_store.endpoints == (
        "http://localhost:1",
    )


def test_etcd_on_another_machine_needs_https_or_a_word() -> None:
    with pytest.raises(SettingsError, match=r"(?s)http://10\.0\.0\.1:2379.*--insecure"):
        Settings.from_flat(etcd="localhost,10.0.0.1")
    assert Settings.from_flat(etcd="10.0.0.1", insecure=True).metadata_store.endpoints
    assert Settings.from_flat(etcd="https://10.0.0.1").metadata_store.endpoints


@pytest.mark.parametrize(
    "wrong",
    [
        {"etcd": "ftp://a"},
        {"cluster": ""},
        {"cluster": "a/b"},
        {"cluster": "a" * 250},
        {"etcd_user": "u"},
        {"etcd_password": "p"},
        {"etcd_password_file": "p"},
        {"etcd_password": "p", "etcd_password_file": "f", "etcd_user": "u"},
        {"etcd_key_file": "k"},
        {"session_ttl_ms": 1_999},
        {"dead_after_refused_ms": -1},
    ],
)
def test_what_cannot_work_with_etcd_stops_the_start(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=next(iter(wrong))):
        Settings.from_flat(**{"etcd": "localhost:2379", **wrong})


@pytest.mark.parametrize(
    "useless",
    [
        {"cluster": "other"},
        {"etcd_user": "u"},
        {"session_ttl_ms": 5_000},
        {"dead_after_refused_ms": 0},
    ],
)
def test_what_is_of_use_only_with_etcd_is_not_taken_without(useless: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match="needs etcd"):
        Settings.from_flat(**useless)


def test_a_password_is_in_no_text_made_of_the_settings() -> None:
    settings = Settings.from_flat(etcd="localhost", etcd_user="u", etcd_password="hunter2")
    assert "hunter2" not in repr(settings)
    assert "hunter2" not in str(settings)
