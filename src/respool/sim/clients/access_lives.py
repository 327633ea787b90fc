"""Users of a simulated run, one after the other: each is added, given its rights, and loses them in some way.

    add user, allow  ->  it may          ->  revoke | deny | remove the user | another password
    it is unknown        it must not be      it may until the change is answered, and for as long as a broker's
    who knows            refused             lease lasts; then nobody acts on the right any more

A request whose answer is lost may be carried out late. A life whose rights were asked for without an answer proves
nothing, unless a DENY ended it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from respool.model.security.acl import AclOperation, AclResource, PatternType, Permission
from respool.model.security.scram_credential import salted_password
from respool.ports.peers import PeerUnreachable
from respool.records.build import NewRecord, build_batch
from respool.sim.checks.history import History
from respool.sim.clients.producers import ACKS_ALL
from respool.sim.clients.sim_client import OK, SimClient
from respool.wire.api_table import Api

GUARDED = "guarded"
SCRAM_SHA_256 = 1
ITERATIONS = 4_096
# How long clients continue as a user that has lost its rights.
AFTERLIFE_S = 12.0
ENDINGS = ("revoke", "deny", "remove", "password")


@dataclass(slots=True, eq=False)
class UserLife:
    user: str
    password: str
    ending: str
    history: History
    # How long a broker may act on what it knew.
    grace_s: float
    # When the rights were there for sure, when their end was asked for, and when it was answered.
    allowed_s: float | None = None
    ending_s: float | None = None
    ended_s: float | None = None
    # Every request that gave rights was answered.
    is_sure: bool = True

    @property
    def proves_end(self) -> bool:
        return self.is_sure or self.ending == "deny"

    def on_allowed(self, sent_s: float, what: str) -> None:
        if self._has_ended_at(sent_s) and self.ending != "password":
            self._violate(f"{what} {sent_s - (self.ended_s or 0):.2f} s after the right went")

    def on_denied(self, sent_s: float, what: str) -> None:
        """It must not happen while nobody has asked for the end of the right."""
        if (
            self.allowed_s is not None
            and sent_s > self.allowed_s + self.grace_s
            and self.ending_s is None
        ):
            self.history.violate("S2", f"{self.user} may, and was denied when it {what}")

    def on_login_refused(self, sent_s: float, *, is_wrong: bool) -> None:
        is_there = self.allowed_s is not None and sent_s > self.allowed_s + self.grace_s
        if is_there and not is_wrong and self.ending_s is None:
            self.history.violate("S2", f"{self.user} was refused although nothing has changed")

    def on_answered(self, logged_in_s: float) -> None:
        """A connection that was begun then has logged in."""
        if self.ending in ("password", "remove") and self._has_ended_at(logged_in_s):
            self._violate("logged in after the password went")

    def on_record_read(self, value: bytes) -> None:
        """A record that was written after the right went cannot be in a reply from before."""
        written = value.removeprefix(b"at ")
        if written != value and self._has_ended_at(float(written)) and self.ending != "password":
            self._violate("read what was written after the right went")

    def _has_ended_at(self, moment_s: float) -> bool:
        return (
            self.proves_end and self.ended_s is not None and moment_s > self.ended_s + self.grace_s
        )

    def _violate(self, text: str) -> None:
        self.history.violate("S1", f"{self.user} ({self.ending}) {text}")


class UserLives(SimClient):
    """The administrator, on the listener without logins, as a super user; and a producer that is always allowed."""

    def __init__(self, name: str, *, grace_s: float, **client: Any) -> None:
        super().__init__(name, **client)
        self._grace_s = grace_s
        self.lives: list[UserLife] = []

    def newest_or(self, before: UserLife | None, now_s: float) -> UserLife | None:
        """The life to act in: that of before, until its end is long past."""
        if (
            before is not None
            and before is not self.lives[-1]
            and (before.ended_s is None or now_s < before.ended_s + AFTERLIFE_S)
        ):
            return before
        return self.lives[-1] if self.lives else None

    async def work(self) -> None:
        writing = asyncio.ensure_future(self._keep_writing())
        try:
            while not self.is_winding_down:
                await self._live(len(self.lives), self.rng.choice(ENDINGS))
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)

    async def _live(self, number: int, ending: str) -> None:
        life = UserLife(
            user=f"user-{number}",
            password=f"secret-{number}",
            ending=ending,
            history=self.history,
            grace_s=self._grace_s,
        )
        life.is_sure &= await self._until_done(
            lambda: self._store_password(life.user, life.password)
        )
        life.is_sure &= await self._until_done(lambda: self._create(life, Permission.ALLOW))
        life.allowed_s = self.loop.time()
        self.lives.append(life)
        await self.pause(8_000.0)
        life.ending_s = self.loop.time()
        await self._until_done(lambda: self._end(life))
        life.ended_s = self.loop.time()
        self.history.counts[f"lives ended by {ending}"] += 1
        await self.pause(2_000.0)

    async def _until_done(self, change: Callable[[], Awaitable[bool]]) -> bool:
        """Repeat it until it is done; return False if some attempt was not answered, and may still be carried out."""
        is_sure = True
        while True:
            try:
                if await change():
                    return is_sure
            except PeerUnreachable:
                is_sure = False
            await self.pause()

    async def _end(self, life: UserLife) -> bool:
        if life.ending == "deny":
            return await self._create(life, Permission.DENY)
        if life.ending == "revoke":
            return await self._revoke(life)
        if life.ending == "remove":
            return await self._remove(life.user)
        return await self._store_password(life.user, f"{life.password} changed")

    # -- requests ----------------------------------------------------------------------------------------------------

    async def _create(self, life: UserLife, permission: Permission) -> bool:
        fields = {
            "resource_type": int(AclResource.TOPIC),
            "resource_name": GUARDED,
            "resource_pattern_type": int(PatternType.LITERAL),
            "principal": f"User:{life.user}",
            "host": "*",
            "operation": int(AclOperation.ALL),
            "permission_type": int(permission),
        }
        reply = await self.ask(self.any_broker(), Api.CREATE_ACLS, 3, creations=[fields])
        return int(reply.results[0].error_code) == OK

    async def _revoke(self, life: UserLife) -> bool:
        fields = {
            "resource_type_filter": int(AclResource.TOPIC),
            "resource_name_filter": GUARDED,
            "pattern_type_filter": int(PatternType.LITERAL),
            "principal_filter": f"User:{life.user}",
            "host_filter": None,
            "operation": 1,
            "permission_type": 1,
        }
        reply = await self.ask(self.any_broker(), Api.DELETE_ACLS, 3, filters=[fields])
        return int(reply.filter_results[0].error_code) == OK

    async def _store_password(self, user: str, password: str) -> bool:
        salt = f"salt of {user}".encode()
        upsertion = {
            "name": user,
            "mechanism": SCRAM_SHA_256,
            "iterations": ITERATIONS,
            "salt": salt,
            "salted_password": salted_password(
                "SCRAM-SHA-256", password, salt=salt, iterations=ITERATIONS
            ),
        }
        return await self._alter_user(deletions=[], upsertions=[upsertion])

    async def _remove(self, user: str) -> bool:
        deletion = {"name": user, "mechanism": SCRAM_SHA_256}
        return await self._alter_user(deletions=[deletion], upsertions=[])

    async def _alter_user(self, **fields: Any) -> bool:
        reply = await self.ask(self.any_broker(), Api.ALTER_USER_SCRAM_CREDENTIALS, 0, **fields)
        # 91: it is gone, by an attempt that was not answered.
        return int(reply.results[0].error_code) in (OK, 91)

    async def _keep_writing(self) -> None:
        """Records that say when they were written, for readers that have lost the right."""
        while not self.is_winding_down:
            record = NewRecord(value=b"at %f" % self.loop.time(), timestamp_ms=self.clock.now_ms())
            data = {"index": 0, "records": build_batch([record])}
            with suppress(PeerUnreachable):
                await self.ask(
                    self.any_broker(),
                    Api.PRODUCE,
                    9,
                    transactional_id=None,
                    acks=ACKS_ALL,
                    timeout=3_000,
                    topic_data=[{"name": GUARDED, "partition_data": [data]}],
                )
            await self.pause(500.0)
