"""Ports that a server can be told to take."""

import socket

from bench.versus.ports import FIRST, LAST, free_ports, is_accepting

from support.ports import reserve_port


def test_ports_differ_and_are_not_those_given_to_clients() -> None:
    ports = free_ports(5)
    assert len(set(ports)) == 5
    assert all(FIRST <= port <= LAST for port in ports)


def test_a_port_is_accepting_when_somebody_listens_there() -> None:
    port = reserve_port()
    assert not is_accepting("127.0.0.1", port)
    with socket.create_server(("127.0.0.1", port)):
        assert is_accepting("127.0.0.1", port)
