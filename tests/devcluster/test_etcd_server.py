"""The etcd that `respool cluster up` starts."""

import asyncio
import shutil
import socket
from pathlib import Path

import pytest

from respool.devcluster import etcd_server


def test_etcd_on_the_path_comes_first_unless_it_is_only_a_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "etcd"
    program.write_bytes(b"\x7fELF")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert etcd_server.find_etcd() == str(program)
    program.write_bytes(b"#!/bin/sh")
    assert etcd_server.find_etcd() != str(program)


def test_a_sole_etcd_does_not_wait_a_second_for_votes_when_it_starts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(etcd_server, "find_etcd", lambda: shutil.which("echo"))
    server = etcd_server.EtcdServer(tmp_path / "etcd", log=tmp_path / "etcd.log")
    assert asyncio.run(server.wait_for_end(30))
    told = dict(one.split("=", 1) for one in server.last_words.split())
    assert int(told["--election-timeout"]) <= 100
    # Less is refused by etcd.
    assert int(told["--election-timeout"]) >= 5 * int(told["--heartbeat-interval"])


def test_its_ports_are_not_those_given_to_clients_and_nobody_listens_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A port that the system chose could go to a connection before etcd took it."""
    with socket.create_server((etcd_server.HOST, 0)) as server:
        taken: int = server.getsockname()[1]
        drawn = iter((taken, 10_007, 10_007, 10_008))
        drawn_from: list[tuple[int, int]] = []

        def randint(first: int, last: int) -> int:
            drawn_from.append((first, last))
            return next(drawn)

        monkeypatch.setattr("respool.devcluster.etcd_server.random.randint", randint)
        monkeypatch.setattr(
            etcd_server, "is_free_here", lambda address: not address.endswith(f":{taken}")
        )
        assert sorted(etcd_server.free_ports(2)) == [10_007, 10_008]
    assert {last for _, last in drawn_from} == {19_999}


def test_an_etcd_whose_port_was_taken_says_so_and_one_that_failed_otherwise_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server((etcd_server.HOST, 0)) as other:
        taken: int = other.getsockname()[1]
        monkeypatch.setattr(etcd_server, "free_ports", lambda _: [taken, 1])
        lost = etcd_server.EtcdServer(tmp_path / "data", log=tmp_path / "log")
        assert asyncio.run(lost.wait_for_end(60))
    assert lost.lost_its_port
    monkeypatch.setattr(etcd_server, "find_etcd", lambda: shutil.which("false"))
    failed = etcd_server.EtcdServer(tmp_path / "data", log=tmp_path / "log")
    assert asyncio.run(failed.wait_for_end(60))
    assert not failed.lost_its_port
