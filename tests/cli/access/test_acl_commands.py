"""`respool acl` and `respool quota` on a broker."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from cli.running import Ended, Run
from respool.testing import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(topics={"orders": 1}, settings={"super_users": "User:ANONYMOUS"}) as broker:
        yield broker


class Shell:
    def __init__(self, run: Run, broker: Broker) -> None:
        self._run = run
        self._broker = broker

    def __call__(self, *words: str, code: int = 0) -> Ended:
        ended = self._run(*words, "--broker", self._broker.bootstrap)
        assert ended.code == code, (ended.out, ended.err)
        return ended

    def json(self, *words: str, code: int = 0) -> Any:
        return json.loads(self(*words, "--json", code=code).out)


@pytest.fixture
def shell(run: Run, broker: Broker) -> Iterator[Shell]:
    shell = Shell(run, broker)
    shell("acl", "enforce")
    yield shell
    shell("acl", "enforce")
    for one in shell.json("acl", "list")["acls"]:
        shell("acl", "delete", "--principal", one["principal"], "--yes")
    shell("acl", "off")


def test_acls_are_created_listed_and_deleted(shell: Shell) -> None:
    created = shell.json(
        "acl", "create", "--principal", "User:a", "-o", "read", "-o", "alter-configs", "-r",
        "topic:ord", "--prefix", "--host", "10.0.0.0/8", "--deny",
    )  # fmt: skip
    listed = shell.json("acl", "list")
    assert sorted(one["operation"] for one in listed["acls"]) == ["alter_configs", "read"]
    assert sorted(created["acls"], key=str) == sorted(listed["acls"], key=str)
    assert {one["pattern"] for one in listed["acls"]} == {"prefixed"}
    assert {one["permission"] for one in listed["acls"]} == {"deny"}
    # Literal by default; matching on demand.
    assert shell.json("acl", "list", "-r", "topic:orders")["acls"] == []
    assert len(shell.json("acl", "list", "-r", "topic:orders", "--matching")["acls"]) == 2
    assert (
        len(shell.json("acl", "delete", "--principal", "User:a", "-o", "read", "--yes")["acls"])
        == 1
    )
    assert len(shell.json("acl", "list")["acls"]) == 1


def test_producers_and_consumers_get_what_they_need(shell: Shell) -> None:
    shell("acl", "create", "--principal", "User:p", "--producer", "orders")
    shell("acl", "create", "--principal", "User:c", "--consumer", "orders", "--group", "billing")
    for principal, operation, resource in (
        ("User:p", "write", "topic:orders"),
        ("User:p", "create", "topic:orders"),
        ("User:c", "read", "topic:orders"),
        ("User:c", "read", "group:billing"),
        ("User:c", "describe", "group:billing"),
    ):
        assert shell.json("acl", "check", principal, operation, resource)["is_allowed"]
    shell("acl", "check", "User:c", "write", "topic:orders", code=1)


def test_a_check_names_the_acl_that_decides(shell: Shell) -> None:
    shell("acl", "create", "--principal", "User:*", "-o", "read", "-r", "topic:*")
    shell(
        "acl",
        "create",
        "--principal",
        "User:m",
        "-o",
        "all",
        "-r",
        "topic:or",
        "--prefix",
        "--deny",
    )
    allowed = shell.json("acl", "check", "User:a", "describe", "topic:orders")
    assert (allowed["acl"]["principal"], allowed["acl"]["operation"]) == ("User:*", "read")
    denied = shell.json("acl", "check", "User:m", "describe", "topic:orders", code=1)
    assert (denied["acl"]["permission"], denied["acl"]["name"]) == ("deny", "or")
    nothing = shell.json("acl", "check", "User:m", "alter", "cluster", code=1)
    assert nothing["acl"] is None
    assert "super user" in shell("acl", "check", "User:ANONYMOUS", "alter", "cluster").out


@pytest.mark.parametrize(
    "words",
    [
        ("create", "--principal", "alice", "-o", "read", "-r", "topic:a"),
        ("create", "--principal", "User:a", "-o", "dream", "-r", "topic:a"),
        ("create", "--principal", "User:a", "-o", "read", "-r", "orders"),
        ("create", "--principal", "User:a", "-o", "read"),
        ("create", "--principal", "User:a", "-o", "read", "-r", "topic:a", "--host", "10.0.0.1/8"),
        ("create", "--principal", "User:a", "--consumer", "orders"),
        ("delete", "--yes"),
        ("check", "alice", "read", "topic:a"),
    ],
    ids=" ".join,
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(
    shell: Shell, words: tuple[str, ...]
) -> None:
    shell("acl", *words, code=2)
    assert shell.json("acl", "list")["acls"] == []


def test_while_acls_are_off_it_says_how_to_switch_them_on(shell: Shell) -> None:
    shell("acl", "off")
    assert "respool acl observe" in shell("acl", "list", code=1).err


def test_nobody_is_locked_out(run: Run) -> None:
    with Broker() as broker:
        assert "super_users" in Shell(run, broker)("acl", "enforce", code=2).err


def test_quotas_are_set_listed_and_removed(shell: Shell) -> None:
    shell("quota", "set", "--user", "a", "producer_byte_rate=10MB", "request_percentage=50")
    shell("quota", "set", "--ip", "default", "connection_creation_rate=20")
    quotas = {one["user"] or "": one for one in shell.json("quota", "list")["quotas"]}
    assert quotas["a"]["limits"] == [
        {"limit": "producer_byte_rate", "value": 10_000_000.0},
        {"limit": "request_percentage", "value": 50.0},
    ]
    assert quotas[""]["ip"] == "default"
    left = shell.json("quota", "remove", "--user", "a", "request_percentage")
    assert [one["limit"] for one in left["limits"]] == ["producer_byte_rate"]
    shell("quota", "remove", "--user", "a")
    shell("quota", "remove", "--ip", "default")
    assert shell.json("quota", "list") == {"quotas": []}
    shell("quota", "set", "producer_byte_rate=1", code=2)
    shell("quota", "set", "--user", "a", "producer_byte_rate=0", code=1)
