"""Addresses of listeners and peers."""

import pytest

from respool.model.addresses import peer_host


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::FFFF:a00:1", "10.0.0.1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("2001:db8::A", "2001:db8::a"),
        ("not:an:address", "not:an:address"),
    ],
)
def test_a_peer_has_one_spelling_whatever_the_socket_says(address: str, host: str) -> None:
    assert peer_host(address) == host
