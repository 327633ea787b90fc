"""A watch whose member says "permission denied": an outdated token gets a new login, a refusal is raised."""

import asyncio
from typing import cast

import pytest

from drivers.store_contract import take
from respool.drivers import etcd_messages as msg
from respool.drivers.etcd_failures import CallFailed, EtcdRefused, FailureKind
from respool.drivers.etcd_members import EtcdMembers
from respool.drivers.etcd_options import EtcdOptions
from respool.drivers.etcd_watch import EtcdWatch, KeySpace

KEYS = KeySpace("respool")
DENIED = msg.WatchResponse(canceled=True, cancel_reason="rpc error: etcdserver: permission denied")
CREATED = msg.WatchResponse(created=True)
LOST = CallFailed("connection lost", FailureKind.UNKNOWN)


def changed(revision: int) -> msg.WatchResponse:
    pair = msg.KeyValue(key=KEYS.stored("/a"), value=b"2", mod_revision=revision)
    return msg.WatchResponse(events=(msg.Event(kv=pair),))


class ScriptedStream:
    def __init__(self, replies: list[msg.WatchResponse | CallFailed]) -> None:
        self._replies = replies

    async def next(self, timeout_ms: int) -> msg.WatchResponse | None:
        reply = self._replies.pop(0)
        if isinstance(reply, CallFailed):
            raise reply
        return reply

    async def close(self) -> None:
        self._replies.clear()


class ScriptedMember:
    """Answers each watch with the next of its scripts."""

    url = "http://one:2379"

    def __init__(self, *watches: list[msg.WatchResponse | CallFailed]) -> None:
        self._watches = list(watches)
        self.logins_forgotten = 0

    async def prepare(self) -> None: ...

    def watch(self, create: msg.WatchCreateRequest) -> ScriptedStream:
        return ScriptedStream(self._watches.pop(0))

    def discard_login(self) -> None:
        self.logins_forgotten += 1


class OneMember:
    def __init__(self, member: ScriptedMember) -> None:
        self._member = member

    def chosen(self) -> ScriptedMember:
        return self._member

    def switch_from(self, member: ScriptedMember, why: Exception) -> None:
        assert member is self._member

    def __len__(self) -> int:
        return 1


def watch(member: ScriptedMember) -> EtcdWatch:
    options = EtcdOptions(endpoints=(member.url,), user="broker", password="secret", backoff_ms=1)
    members = cast(EtcdMembers, OneMember(member))
    return EtcdWatch(members, options, KEYS, prefix="", after_revision=1)


def test_a_denied_token_after_a_lost_connection_gets_a_new_login() -> None:
    """etcd 3.5 forgets its tokens with a restart. The lost connection must not count as the new login."""
    member = ScriptedMember([CREATED, LOST], [DENIED], [CREATED, changed(2)])
    [change] = asyncio.run(take(watch(member).changes(), 1))
    assert change.value == b"2"
    assert member.logins_forgotten == 1


def test_a_login_denied_twice_is_a_refusal() -> None:
    member = ScriptedMember([DENIED], [DENIED])
    with pytest.raises(EtcdRefused):
        asyncio.run(take(watch(member).changes(), 1))
    assert member.logins_forgotten == 1


def test_each_outage_has_its_own_new_login() -> None:
    member = ScriptedMember([DENIED], [CREATED, changed(2), DENIED], [CREATED, changed(3)])
    changes = asyncio.run(take(watch(member).changes(), 2))
    assert len(changes) == 2
    assert member.logins_forgotten == 2
