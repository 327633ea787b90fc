"""All members of an etcd as one: a call goes to the member that answered last, and on to the next when it fails.

Between rounds over all of them there is a pause that grows, with chance in it, so that many brokers do not knock at the
same time at an etcd that comes back.
"""

import asyncio
import logging
import random

from respool.drivers import etcd_messages as msg
from respool.drivers.etcd_failures import CallFailed, EtcdRefused, Verdict, refusal_to_user
from respool.drivers.etcd_member import EtcdIdentity, EtcdMember
from respool.drivers.etcd_options import EtcdOptions, endpoint_of
from respool.drivers.etcd_tls import EtcdTls
from respool.pacing.backoff import Backoff
from respool.ports.metadata_store import StoreUnavailable

logger = logging.getLogger(__name__)


class EtcdMembers:
    """Raises EtcdRefused at once when the files for TLS cannot be used."""

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

    async def get_ready(self) -> None:
        """Try every member once; one that answers is enough, one that refuses us is too many.

        Raises:
            EtcdRefused: wrong password, or a version with known faults.
            StoreUnavailable: nobody answers.
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
        raise self._nobody(
            {member.url: str(outcome) for member, outcome in zip(self._members, found, strict=True)}
        )

    async def call(
        self,
        method: msg.Method[msg.Ask, msg.Reply],
        ask: msg.Ask,
        *,
        is_repeatable: bool = True,
    ) -> msg.Reply:
        """Ask one member after the other until one answers or time is up.

        What is not repeatable goes on to another member only when it is certain that nothing happened.

        Raises:
            CallFailed: etcd refuses this question; nothing happened.
            EtcdRefused: etcd refuses us.
            StoreUnavailable: nobody answered; what is not repeatable may have happened.
        """
        attempts = Attempts(self, self._options)
        while True:
            member = self.chosen()
            timeout_ms = attempts.left_ms()
            if is_repeatable:
                timeout_ms = min(timeout_ms, self._options.attempt_timeout_ms)
            try:
                return await member.call(method, ask, timeout_ms=timeout_ms)
            except CallFailed as failure:
                if failure.verdict is Verdict.REFUSED:
                    raise (
                        refusal_to_user(failure, user=self._options.user, root=self._root)
                        or failure
                    ) from failure
                if failure.verdict is Verdict.UNKNOWN and not is_repeatable:
                    self.pass_over(member, failure)
                    raise StoreUnavailable(f"etcd at {member.url}: {failure}") from failure
                await attempts.failed(member, failure)
            except EtcdRefused as refusal:
                await attempts.failed(member, refusal)

    def chosen(self) -> EtcdMember:
        if self._is_closed:
            raise StoreUnavailable("the connection to etcd is closed")
        return self._members[self._chosen]

    def pass_over(self, member: EtcdMember, why: Exception) -> None:
        """Go on with the next member, unless somebody else has done so meanwhile."""
        if self._members[self._chosen] is not member or self._is_closed:
            return
        self._chosen = (self._chosen + 1) % len(self._members)
        if len(self._members) > 1:
            logger.info(
                "etcd at %s: %s; going on with %s", member.url, why, self._members[self._chosen].url
            )

    async def close(self) -> None:
        self._is_closed = True
        for member in self._members:
            await member.close()

    def __len__(self) -> int:
        return len(self._members)

    def nobody_answers(self, reasons: dict[str, str]) -> StoreUnavailable:
        if self._is_closed:
            return StoreUnavailable("the connection to etcd is closed")
        return self._nobody(reasons)

    def _nobody(self, reasons: dict[str, str]) -> StoreUnavailable:
        told = "; ".join(f"{url}: {reason}" for url, reason in reasons.items())
        return StoreUnavailable(f"no etcd member answers: {told}")

    async def _is_up(self, member: EtcdMember) -> None:
        await member.get_ready()


class Attempts:
    """The tries of one call, or of mending one watch: how much time is left, and what each member said."""

    def __init__(self, members: EtcdMembers, options: EtcdOptions) -> None:
        self._members = members
        self._options = options
        self._give_up_at = asyncio.get_running_loop().time() + options.request_timeout_ms / 1000
        # Half to all of the configured backoff.
        self._pauses = Backoff(
            first=0.75 * options.backoff_ms, longest=0.75 * options.backoff_ms_max, jitter=1 / 3
        )
        self._tries = 0
        self._reasons: dict[str, str] = {}
        self._refusals: dict[str, EtcdRefused] = {}

    def left_ms(self) -> int:
        left = self._give_up_at - asyncio.get_running_loop().time()
        return max(1, int(left * 1000))

    async def failed(self, member: EtcdMember, why: CallFailed | EtcdRefused) -> None:
        """Choose another member, after a pause when each has had its turn.

        Raises:
            EtcdRefused: every member refuses us.
            StoreUnavailable: time is up.
        """
        self._members.pass_over(member, why)
        self._tries += 1
        self._reasons[member.url] = str(why)
        if isinstance(why, EtcdRefused):
            self._refusals[member.url] = why
            if len(self._refusals) == len(self._members):
                raise why
        else:
            self._refusals.pop(member.url, None)
        # Time is up also when the pause would not leave any.
        pause_ms = 0.0
        if self._tries % len(self._members) == 0:
            rounds = self._tries // len(self._members)
            pause_ms = self._pauses.delay(rounds, random=random.random)
        if self.left_ms() <= pause_ms + 1:
            raise self._members.nobody_answers(self._reasons) from why
        await asyncio.sleep(pause_ms / 1000)
