"""One etcd member: login, version check, calls."""

import asyncio
import logging
import re

from respool.drivers import etcd_messages as msg
from respool.drivers.etcd_connection import EtcdConnection, WatchStream
from respool.drivers.etcd_failures import CallFailed, EtcdRefused, FailureKind, refusal_for_operator
from respool.drivers.etcd_options import EtcdOptions, endpoint_of
from respool.drivers.etcd_tls import EtcdTls
from respool.model.errors import SettingsError

logger = logging.getLogger(__name__)

# A member separated from the others must fail at once instead of retrying until its own timeout, and must end its
# watches.
_HAS_LEADER = {"hasleader": "true"}


class EtcdIdentity:
    """The etcd cluster of all members, set by the first one that replies."""

    def __init__(self) -> None:
        self._cluster_id: int | None = None
        self._source = ""

    def check(self, url: str, cluster_id: int) -> None:
        if self._cluster_id is None:
            self._cluster_id, self._source = cluster_id, url
        elif cluster_id != self._cluster_id:
            # Otherwise half of the brokers could use one and half the other.
            raise EtcdRefused(
                f"etcd at {url} and at {self._source} belong to different etcd "
                "clusters. Check etcd, on every broker"
            )


class EtcdMember:
    """Logs in on first use, and again after its connection broke."""

    def __init__(
        self,
        url: str,
        options: EtcdOptions,
        tls: EtcdTls | None,
        identity: EtcdIdentity,
    ) -> None:
        self.url = url
        self._options = options
        self._identity = identity
        self._connection = EtcdConnection(
            endpoint_of(url), tls, connect_timeout_ms=options.attempt_timeout_ms
        )
        self._getting_ready = asyncio.Lock()
        # The connection generation that is logged in and has an accepted version.
        self._ready_in = -1
        # The login in progress was discarded before it was complete.
        self._is_login_discarded = False
        self._token = ""
        self._password = options.password
        self._has_warned = False

    async def call(
        self, method: msg.Method[msg.Request, msg.Response], ask: msg.Request, *, timeout_ms: int
    ) -> msg.Response:
        """Send a request and return the response, after a login if necessary.

        Raises:
            CallFailed: there was no response, or an error.
            EtcdRefused: the member rejects this client.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        for is_last_try in (False, True):
            try:
                async with asyncio.timeout_at(deadline):
                    await self.prepare()
            except TimeoutError as error:
                raise CallFailed(
                    f"no answer within {timeout_ms} ms", FailureKind.NOT_DONE
                ) from error
            left_ms = max(1, int((deadline - loop.time()) * 1000))
            try:
                return await self._connection.exchange(
                    method, ask, metadata=self._metadata(), timeout_ms=left_ms
                )
            except CallFailed as failure:
                if is_last_try or not (self._options.user and failure.is_about_token):
                    raise
            self.discard_login()
        raise AssertionError

    async def prepare(self) -> None:
        """Log in and check the version, once per connection.

        Raises:
            CallFailed: no response; the caller's request was not sent.
            EtcdRefused: wrong password, a version with known faults, or a member of another etcd cluster.
        """
        async with self._getting_ready:
            # A token that etcd issued before its restart may be discarded before the version is known.
            while self._ready_in != self._connection.generation:
                await self._prepare()

    async def _prepare(self) -> None:
        self._is_login_discarded = False
        generation = self._connection.generation
        try:
            await self._log_in()
            status = await self._connection.exchange(
                msg.STATUS,
                msg.Empty(),
                metadata=self._login(),
                timeout_ms=self._options.attempt_timeout_ms,
            )
        except CallFailed as failure:
            refusal = refusal_for_operator(failure, user=self._options.user, root="/")
            if refusal is not None:
                raise refusal from failure
            # The caller's request was not sent.
            raise CallFailed(str(failure), FailureKind.NOT_DONE, failure.status) from failure
        self._check_version(status.version)
        if status.header is not None:
            self._identity.check(self.url, status.header.cluster_id)
        if not self._is_login_discarded:
            self._ready_in = generation

    def discard_login(self) -> None:
        """Log in again before the next request, also if a login is in progress."""
        self._ready_in = -1
        self._is_login_discarded = True

    def watch(self, create: msg.WatchCreateRequest) -> WatchStream:
        return self._connection.watch(create, metadata=self._metadata())

    async def close(self) -> None:
        """Pending calls fail."""
        await self._connection.close()

    async def _log_in(self) -> None:
        self._token = ""
        if not self._options.user:
            return
        try:
            try:
                self._token = await self._new_token()
            except CallFailed as failure:
                if not (failure.is_about_password and self._has_new_password()):
                    raise
                self._token = await self._new_token()
        except CallFailed as failure:
            if "authentication is not enabled" not in str(failure):
                raise
            self._warn(
                f"etcd at {self.url} accepts anyone: etcd_user is set, but authentication is not enabled there"
            )

    async def _new_token(self) -> str:
        reply = await self._connection.exchange(
            msg.AUTHENTICATE,
            msg.AuthenticateRequest(name=self._options.user, password=self._password),
            metadata={},
            timeout_ms=self._options.attempt_timeout_ms,
        )
        return reply.token

    def _has_new_password(self) -> bool:
        """True if the password has changed at its source, and was loaded."""
        if self._options.read_password is None:
            return False
        try:
            password = self._options.read_password()
        except SettingsError as error:
            logger.warning("etcd rejects the password, and there is no new one: %s", error)
            return False
        is_new = password != self._password
        self._password = password
        return is_new

    def _login(self) -> dict[str, str]:
        return {"token": self._token} if self._token else {}

    def _metadata(self) -> dict[str, str]:
        return _HAS_LEADER | self._login()

    def _check_version(self, version: str) -> None:
        if is_known_good(version):
            return
        problem = f"etcd at {self.url} is version {version}, which has known faults with leases and reads: {ADVICE}"
        if not self._options.allow_old_versions:
            raise EtcdRefused(
                f"{problem}; or, for development only, accept it: --set etcd_allow_old_versions=true, which "
                "is also in the file of `respool cluster up`: --config respool-cluster/cluster.toml"
            )
        self._warn(problem)

    def _warn(self, problem: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            logger.warning("%s", problem)


# The first good patch release of each minor version that has bad ones; older minor versions are bad, newer ones good.
_GOOD_SINCE = {(3, 5): 30, (3, 6): 11}

ADVICE = "run 3.5.30, 3.6.11 or newer"


def is_known_good(version: str) -> bool:
    """Whether a version is free of the known faults; an unparsable one is not.

    Before these versions a lease could be revoked wrongly or renewed after it was gone, and a linearizable read could
    be stale after a pause: faults that lead to two leaders.
    """
    found = re.match(r"(\d+)\.(\d+)\.(\d+)(?=$|\+)", version)
    if found is None:
        # Such as 3.7.0-rc.1: good only if its whole line is.
        found = re.match(r"(\d+)\.(\d+)\.()", version)
        if found is None:
            return False
    line = int(found[1]), int(found[2])
    if line in _GOOD_SINCE:
        return bool(found[3]) and int(found[3]) >= _GOOD_SINCE[line]
    return line > max(_GOOD_SINCE)
