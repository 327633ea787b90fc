"""One etcd member: our login there, whether its version will do, and calls."""

import asyncio
import logging
import re

from respool.drivers import etcd_messages as msg
from respool.drivers.etcd_connection import EtcdConnection, WatchStream
from respool.drivers.etcd_failures import CallFailed, EtcdRefused, Verdict, refusal_to_user
from respool.drivers.etcd_options import EtcdOptions, endpoint_of
from respool.drivers.etcd_tls import EtcdTls
from respool.model.errors import SettingsError

logger = logging.getLogger(__name__)

# A member that is cut off from the others shall say so at once, instead of trying until it gives up, and shall end
# watches on which it would tell nothing.
_HAS_LEADER = {"hasleader": "true"}


class EtcdIdentity:
    """Which etcd cluster the members belong to: the one that the first of them to answer belongs to."""

    def __init__(self) -> None:
        self._cluster_id: int | None = None
        self._told_by = ""

    def check(self, url: str, cluster_id: int) -> None:
        if self._cluster_id is None:
            self._cluster_id, self._told_by = cluster_id, url
        elif cluster_id != self._cluster_id:
            # Half of the brokers could go by one and half by the other.
            raise EtcdRefused(
                f"etcd at {url} and at {self._told_by} do not belong together: they are members of different etcd "
                "clusters. Check etcd, on every broker"
            )


class EtcdMember:
    """Gets ready when first used, and again after its connection broke."""

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
        # Logged in and of a version we take, on the connection of this generation.
        self._ready_in = -1
        self._token = ""
        self._password = options.password
        self._has_warned = False

    async def call(
        self, method: msg.Method[msg.Ask, msg.Reply], ask: msg.Ask, *, timeout_ms: int
    ) -> msg.Reply:
        """Ask and return the reply, after logging in where that is needed.

        Raises:
            CallFailed: it did not answer, or answered with an error.
            EtcdRefused: it will have nothing to do with us.
        """
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + timeout_ms / 1000
        for is_last_try in (False, True):
            try:
                async with asyncio.timeout_at(give_up_at):
                    await self.get_ready()
            except TimeoutError as error:
                raise CallFailed(f"no answer within {timeout_ms} ms", Verdict.NOT_DONE) from error
            left_ms = max(1, int((give_up_at - loop.time()) * 1000))
            try:
                return await self._connection.exchange(
                    method, ask, metadata=self._metadata(), timeout_ms=left_ms
                )
            except CallFailed as failure:
                if is_last_try or not (self._options.user and failure.is_about_token):
                    raise
            self.forget_login()
        raise AssertionError

    async def get_ready(self) -> None:
        """Log in and look at the version, once for each connection.

        Raises:
            CallFailed: it does not answer; nothing was asked of it yet.
            EtcdRefused: wrong password, a version with known faults, or a member of some other etcd.
        """
        async with self._getting_ready:
            if self._ready_in == self._connection.generation:
                return
            try:
                await self._log_in()
                status = await self._connection.exchange(
                    msg.STATUS,
                    msg.Nothing(),
                    metadata=self._login(),
                    timeout_ms=self._options.attempt_timeout_ms,
                )
            except CallFailed as failure:
                refusal = refusal_to_user(failure, user=self._options.user, root="/")
                if refusal is not None:
                    raise refusal from failure
                # What was to be asked was not asked.
                raise CallFailed(str(failure), Verdict.NOT_DONE, failure.status) from failure
            self._check_version(status.version)
            if status.header is not None:
                self._identity.check(self.url, status.header.cluster_id)
            self._ready_in = self._connection.generation

    def forget_login(self) -> None:
        self._ready_in = -1

    def watch(self, create: msg.WatchCreate) -> WatchStream:
        return self._connection.watch(create, metadata=self._metadata())

    async def close(self) -> None:
        """Calls under way fail."""
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
                f"etcd at {self.url} lets everybody in: etcd_user is set, but authentication is not enabled there"
            )

    async def _new_token(self) -> str:
        reply = await self._connection.exchange(
            msg.AUTHENTICATE,
            msg.LoginAsk(name=self._options.user, password=self._password),
            metadata={},
            timeout_ms=self._options.attempt_timeout_ms,
        )
        return reply.token

    def _has_new_password(self) -> bool:
        """Whether it was changed where we have it from, and is known here now."""
        if self._options.read_password is None:
            return False
        try:
            password = self._options.read_password()
        except SettingsError as error:
            logger.warning("etcd does not take the password, and there is no new one: %s", error)
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
        trouble = f"etcd at {self.url} is version {version}, which has known faults with leases and reads: {ADVICE}"
        if not self._options.allow_old_versions:
            raise EtcdRefused(
                f"{trouble}; or, for development only, take it as it is: --set etcd_allow_old_versions=true, which "
                "stands in the file of `respool cluster up`, too: --config respool-cluster/cluster.toml"
            )
        self._warn(trouble)

    def _warn(self, trouble: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            logger.warning("%s", trouble)


# The first good patch of each line that has bad ones; lines before the first are bad, lines after the last are good.
_GOOD_SINCE = {(3, 5): 30, (3, 6): 11}

ADVICE = "run 3.5.30, 3.6.11 or newer"


def is_known_good(version: str) -> bool:
    """A text that is no version is not known to be good."""
    found = re.match(r"(\d+)\.(\d+)\.(\d+)(?=$|\+)", version)
    if found is None:
        # 3.7.0-rc.1 and the like: good only where its whole line is.
        found = re.match(r"(\d+)\.(\d+)\.()", version)
        if found is None:
            return False
    line = int(found[1]), int(found[2])
    if line in _GOOD_SINCE:
        return bool(found[3]) and int(found[3]) >= _GOOD_SINCE[line]
    return line > max(_GOOD_SINCE)
