import dataclasses
from typing import Any

import pytest

from respool.model.errors import SettingsError
from respool.model.settings import Settings, parse_address


def test_by_default_only_this_machine_is_listened_to() -> None:
    assert Settings().listen_address == ("127.0.0.1", 9092)


@pytest.mark.parametrize("listen", ["0.0.0.0:9092", "[::]:9092", "192.0.2.7:9092", "example.com:1"])
def test_other_machines_are_let_in_only_when_told_so(listen: str) -> None:
    with pytest.raises(SettingsError, match="--insecure"):
        Settings(listen=listen)
    assert Settings(listen=listen, insecure=True).listen_address[1] > 0


@pytest.mark.parametrize("listen", ["localhost:0", "127.0.0.5:80", "[::1]:9092"])
def test_loopback_addresses_are_fine(listen: str) -> None:
    assert Settings(listen=listen)


def test_metrics_are_kept_to_this_machine_too() -> None:
    with pytest.raises(SettingsError, match="metrics_listen"):
        Settings(metrics_listen="0.0.0.0:9100")
    assert Settings(metrics_listen="127.0.0.1:9100").metrics_address == ("127.0.0.1", 9100)


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
        {"memory_bytes_max": 2048, "frame_bytes_max": 4096},
        {"topic": {"retention.ms": "soon"}},
        {"topic": {"retention": "1"}},
        {"advertised": "nowhere"},
    ],
)
def test_a_setting_that_cannot_work_stops_the_start(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        Settings(**wrong)


def test_every_setting_says_what_it_is_for() -> None:
    for item in dataclasses.fields(Settings):
        assert item.metadata["doc"].endswith("."), item.name
