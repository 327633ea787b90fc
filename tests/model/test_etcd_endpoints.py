"""Where etcd is, as people write it."""

import pytest

from respool.model.errors import SettingsError
from respool.model.etcd_endpoints import host_of, parse_endpoints


def test_addresses_become_whole_urls_in_their_order() -> None:
    text = " 127.0.0.1:2379, https://etcd.example:1,http://[::1]:3/ ,,etcd "
    assert parse_endpoints(text, is_tls=False) == (
        "http://127.0.0.1:2379",
        "https://etcd.example:1",
        "http://[::1]:3",
        "http://etcd:2379",
    )
    assert parse_endpoints("a:1,http://b:2", is_tls=True) == ("https://a:1", "http://b:2")
    assert parse_endpoints("", is_tls=False) == ()
    assert host_of("http://[::1]:3") == "::1"


@pytest.mark.parametrize(
    "wrong",
    [
        "ftp://a:1",
        "a:x",
        "a:99999",
        "a:0",
        ":2379",
        "http://",
        "a:1/path",
        "a:1?x",
        "http://u:pw@a:1",
        "[::1",
    ],
)
def test_what_is_no_address_is_told(wrong: str) -> None:
    with pytest.raises(SettingsError, match="separated by commas") as raised:
        parse_endpoints(wrong, is_tls=False)
    assert "pw" not in str(raised.value)


def test_an_address_is_given_once() -> None:
    with pytest.raises(SettingsError, match="http://a:2379 twice"):
        parse_endpoints("a,http://a:2379", is_tls=False)
