"""All members of an etcd cluster: a call uses the member that replied last, and the next one if it fails.

After each round over all members there is an exponential backoff with jitter, so that many brokers do not reconnect at
the same time when etcd comes back.
"""

import asyncio
import logging
import random

from respool.drivers import etcd_messages as msg
from respool.drivers.etcd_failures import CallFailed, EtcdRefused, FailureKind, refusal_for_operator
from respool.drivers.etcd_member import EtcdIdentity, EtcdMember
from respool.drivers.etcd_options import EtcdOptions, endpoint_of
from respool.drivers.etcd_tls import EtcdTls
from respool.pacing.backoff import Backoff
from respool.ports.metadata_store import StoreUnavailable

logger = logging.getLogger(__name__)


class EtcdMembers:
    """Raises EtcdRefused if the TLS files are unusable."""

    def __init__(self, options: EtcdOptions, *, root: str) -> None:
        self._options = options
        self._root = root
        tls = None
        if any(endpoint_of(url).is_tls for url in options.endpoints):
            try:
                tls = EtcdTls(options)
            except OSError as error:
                raise EtcdRefused(
                    f"the files for TLS to etcd cannot be used: {error}: "
                    "check etcd_ca_file, etcd_cert_file and etcd_key_file"
                ) from error
        identity = EtcdIdentity()
        self._members = [EtcdMember(url, options, tls, identity) for url in options.endpoints]
        self._chosen = 0
        self._is_closed = False

    async def prepare(self) -> None:
        """Try every member once; one that replies is enough, one that rejects us is an error.

        Raises:
            EtcdRefused: wrong password, or a version with known faults.
            StoreUnavailable: no member replies.
        """
        found = await asyncio.gather(
            *(self._is_up(member) for member in self._members), return_exceptions=True
        )
        for outcome in found:
            if isinstance(outcome, BaseException) and not isinstance(outcome, CallFailed):
                raise outcome
        for number, outcome in enumerate(found):
            if not isinstance(outcome, BaseException):
                self._chosen = number
                return
        raise self._unavailable(
            {member.url: str(outcome) for member, outcome in zip(self._members, found, strict=True)}
        )

    async def call(
        self,
        method: msg.Method[msg.Request, msg.Response],
        ask: msg.Request,
        *,
        is_repeatable: bool = True,
    ) -> msg.Response:
        """Send a request to one member after the other until one replies or time is up.

        A request that is not repeatable is sent again only if it was certainly not executed.

        Raises:
            CallFailed: etcd rejects this request; it was not executed.
            EtcdRefused: etcd rejects this client.
            StoreUnavailable: no member replied; a request that is not repeatable may have been executed.
        """
        attempts = CallAttempts(self, self._options)
        while True:
            member = self.chosen()
            timeout_ms = attempts.left_ms()
            if is_repeatable:
                timeout_ms = min(timeout_ms, self._options.attempt_timeout_ms)
            try:
                return await member.call(method, ask, timeout_ms=timeout_ms)
            except CallFailed as failure:
                if failure.kind is FailureKind.REFUSED:
                    raise (
                        refusal_for_operator(failure, user=self._options.user, root=self._root)
                        or failure
                    ) from failure
                if failure.kind is FailureKind.UNKNOWN and not is_repeatable:
                    self.switch_from(member, failure)
                    raise StoreUnavailable(f"etcd at {member.url}: {failure}") from failure
                await attempts.failed(member, failure)
            except EtcdRefused as refusal:
                await attempts.failed(member, refusal)

    def chosen(self) -> EtcdMember:
        if self._is_closed:
            raise StoreUnavailable("the connection to etcd is closed")
        return self._members[self._chosen]

    def switch_from(self, member: EtcdMember, why: Exception) -> None:
        """Switch to the next member, unless another call has done so meanwhile."""
        if self._members[self._chosen] is not member or self._is_closed:
            return
        self._chosen = (self._chosen + 1) % len(self._members)
        if len(self._members) > 1:
            logger.info(
                "etcd at %s: %s; switching to %s", member.url, why, self._members[self._chosen].url
            )

    async def close(self) -> None:
        self._is_closed = True
        for member in self._members:
            await member.close()

    def __len__(self) -> int:
        return len(self._members)

    def unavailable(self, reasons: dict[str, str]) -> StoreUnavailable:
        if self._is_closed:
            return StoreUnavailable("the connection to etcd is closed")
        return self._unavailable(reasons)

    def _unavailable(self, reasons: dict[str, str]) -> StoreUnavailable:
        told = "; ".join(f"{url}: {reason}" for url, reason in reasons.items())
        return StoreUnavailable(f"no etcd member replies: {told}")

    async def _is_up(self, member: EtcdMember) -> None:
        await member.prepare()


class CallAttempts:
    """The attempts of one call or of repairing one watch: remaining time, and the failure of each member."""

    def __init__(self, members: EtcdMembers, options: EtcdOptions) -> None:
        self._members = members
        self._options = options
        self._deadline = asyncio.get_running_loop().time() + options.request_timeout_ms / 1000
        # Half to all of the configured backoff.
        self._pauses = Backoff(
            first=0.75 * options.backoff_ms, longest=0.75 * options.backoff_ms_max, jitter=1 / 3
        )
        self._tries = 0
        self._reasons: dict[str, str] = {}
        self._refusals: dict[str, EtcdRefused] = {}

    def left_ms(self) -> int:
        left = self._deadline - asyncio.get_running_loop().time()
        return max(1, int(left * 1000))

    async def failed(self, member: EtcdMember, why: CallFailed | EtcdRefused) -> None:
        """Switch to another member, after a pause when all were tried.

        Raises:
            EtcdRefused: every member rejects this client.
            StoreUnavailable: time is up.
        """
        self._members.switch_from(member, why)
        self._tries += 1
        self._reasons[member.url] = str(why)
        if isinstance(why, EtcdRefused):
            self._refusals[member.url] = why
            if len(self._refusals) == len(self._members):
                raise why
        else:
            self._refusals.pop(member.url, None)
        # Time is also up if the pause would leave none.
        pause_ms = 0.0
        if self._tries % len(self._members) == 0:
            rounds = self._tries // len(self._members)
            pause_ms = self._pauses.delay(rounds, random=random.random)
        if self.left_ms() <= pause_ms + 1:
            raise self._members.unavailable(self._reasons) from why
        await asyncio.sleep(pause_ms / 1000)
