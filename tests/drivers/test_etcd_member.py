"""A member's login, and which versions of etcd are known to be good."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest

from respool.drivers import etcd_messages as msg
from respool.drivers.etcd_connection import EtcdConnection
from respool.drivers.etcd_member import EtcdIdentity, EtcdMember, is_known_good
from respool.drivers.etcd_options import EtcdOptions

URL = "http://127.0.0.1:2379"


class ScriptedConnection:
    """Numbers the tokens it issues, and tells the version once the test lets it."""

    def __init__(self) -> None:
        self.generation = 0
        self.logins = 0
        self.is_version_asked = asyncio.Event()
        self.may_tell_version = asyncio.Event()

    async def exchange(
        self, method: object, ask: object, *, metadata: Mapping[str, str], timeout_ms: int
    ) -> Any:
        if method is msg.AUTHENTICATE:
            self.logins += 1
            return msg.AuthenticateResponse(token=f"token-{self.logins}")
        assert metadata["token"] == f"token-{self.logins}"
        self.is_version_asked.set()
        await self.may_tell_version.wait()
        return msg.StatusResponse(version="3.6.11")


def test_a_login_in_progress_that_is_discarded_is_made_again() -> None:
    """
    1. A call logs in.   2. etcd restarts and forgets the token.   3. A watch is denied with the token before that one,
    and discards the login.   4. The login of the call must not count for the watch: it would be denied a second time.
    """

    async def story() -> None:
        connection = ScriptedConnection()
        options = EtcdOptions(endpoints=(URL,), user="broker", password="secret")
        member = EtcdMember(URL, options, None, EtcdIdentity())
        member._connection = cast(EtcdConnection, connection)
        call = asyncio.create_task(member.prepare())
        await connection.is_version_asked.wait()
        member.discard_login()
        connection.may_tell_version.set()
        await call
        assert connection.logins == 2
        assert member._metadata()["token"] == "token-2"
        # And this one counts.
        await member.prepare()
        assert connection.logins == 2

    asyncio.run(story())


@pytest.mark.parametrize(
    "version", ["3.5.30", "3.5.31", "3.6.11", "3.6.20", "3.7.0", "4.0.0", "3.7.0-rc.1"]
)
def test_lines_are_good_from_their_first_good_patch_on(version: str) -> None:
    assert is_known_good(version)


@pytest.mark.parametrize(
    "version",
    [
        "3.4.42",
        "3.5.0",
        "3.5.29",
        "3.6.0",
        "3.6.10",
        "2.3.8",
        "3.6.0-rc.3",
        "3.5.30-alpha",
        "",
        "new",
        "3.5",
    ],
)
def test_what_comes_before_or_is_no_version_is_not(version: str) -> None:
    assert not is_known_good(version)
