"""A simulated client that logs in by SCRAM, produces and reads; and one that tries without a login.

It talks to any broker without looking up the leader: a broker must refuse what the user may not do before it says
anything else. What it may not have done any more is decided by the user's life (`access_lives.py`).
"""

from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from respool.client.kafka.errors import ClientError
from respool.client.kafka.sasl import ScramLogin
from respool.drivers.tcp_peers import PeerLoginFailed, TcpPeers
from respool.model.ids import BrokerId
from respool.ports.peers import PeerUnreachable
from respool.records.build import NewRecord, build_batch
from respool.records.record import read_records
from respool.sim.clients.access_lives import GUARDED, UserLife, UserLives
from respool.sim.clients.consumers import batches_of
from respool.sim.clients.producers import ACKS_ALL
from respool.sim.clients.sim_client import OK, SimClient
from respool.wire.api_table import Api
from respool.wire.client_codec import decode_reply, encode_request

MECHANISM = "SCRAM-SHA-256"
TOPIC_AUTHORIZATION_FAILED = 29
_UNPACKED_MAX = 1 << 24


class SimLogin:
    """A `PeerSecurity`: a login in the clear, for each connection."""

    def __init__(self, user: str, password: str, rng: Random) -> None:
        self._user = user
        self._password = password
        self._rng = rng

    def context(self) -> None:
        return None

    async def log_in(self, request: Callable[[bytes], Awaitable[memoryview]]) -> None:
        async def ask(api: Api, **fields: Any) -> Any:
            frame = encode_request(api, 1, fields, correlation_id=0, client_id=self._user)
            return decode_reply(api, 1, await request(frame[4:]))

        reply = await ask(Api.SASL_HANDSHAKE, mechanism=MECHANISM)
        if reply.error_code:
            raise PeerLoginFailed(f"the broker refuses {MECHANISM}")
        nonce = f"{self._rng.getrandbits(96):x}"
        login = ScramLogin(MECHANISM, self._user, self._password, nonce=nonce)
        challenge = await ask(Api.SASL_AUTHENTICATE, auth_bytes=login.begin())
        try:
            proof = None if challenge.error_code else login.answer(bytes(challenge.auth_bytes))
        except ClientError as error:
            raise PeerLoginFailed(str(error)) from error
        # Whether the broker proves itself is not checked: who guesses passwords does not, either.
        if proof is None or (await ask(Api.SASL_AUTHENTICATE, auth_bytes=proof)).error_code:
            raise PeerLoginFailed(f"{self._user} is refused")


class SecuredUser(SimClient):
    """Acts as the user of each life in turn, for some time after the life has ended, too."""

    def __init__(self, name: str, *, lives: UserLives, is_reader: bool, **client: Any) -> None:
        super().__init__(name, **client)
        self._lives = lives
        self._is_reader = is_reader
        self._life: UserLife | None = None
        # When the connections of now were begun at the earliest, and how.
        self._logged_in_s = 0.0
        self._has_wrong_password = False
        self._positions: dict[BrokerId, int] = {}

    async def work(self) -> None:
        while not self.is_winding_down:
            await self._turn()
            await self.pause(100.0)

    async def _turn(self) -> None:
        life = self._lives.newest_or(self._life, self.loop.time())
        if life is None:
            return
        if life is not self._life:
            self._life = life
            await self._log_in_as(life, life.password)
        elif self.rng.random() < 0.1:
            # Another login: connections do not live as long as rights.
            wrong = self.rng.random() < 0.3
            await self._log_in_as(life, f"{life.password} wrong" if wrong else life.password)
        began_s = self.loop.time()
        try:
            await (self._read(life) if self._is_reader else self._write(life))
        except PeerLoginFailed:
            self.history.counts["logins refused"] += 1
            life.on_login_refused(began_s, is_wrong=self._has_wrong_password)
        except PeerUnreachable:
            pass

    async def _log_in_as(self, life: UserLife, password: str) -> None:
        await self._peers.close()
        self._has_wrong_password = password != life.password
        self._logged_in_s = self.loop.time()
        self._peers = TcpPeers(
            self._brokers,
            connect_timeout_ms=2_000,
            request_timeout_ms=5_000,
            security=SimLogin(life.user, password, self.rng),
        )

    async def _write(self, life: UserLife) -> None:
        sent_s = self.loop.time()
        record = NewRecord(value=b"by a user", timestamp_ms=self.clock.now_ms())
        data = {"index": 0, "records": build_batch([record])}
        reply = await self.ask(
            self.any_broker(),
            Api.PRODUCE,
            9,
            transactional_id=None,
            acks=ACKS_ALL,
            timeout=3_000,
            topic_data=[{"name": GUARDED, "partition_data": [data]}],
        )
        (answer,) = reply.responses[0].partition_responses
        self._on_answer(life, sent_s, int(answer.error_code), "wrote")

    async def _read(self, life: UserLife) -> None:
        sent_s, broker = self.loop.time(), self.any_broker()
        position = self._positions.get(broker, 0)
        asked = {"partition": 0, "fetch_offset": position, "partition_max_bytes": 1 << 20}
        reply = await self.ask(
            broker,
            Api.FETCH,
            12,
            # Often longer than a life.
            max_wait=self.rng.choice((100, 4_000)),
            min_bytes=self.rng.choice((1, 1 << 20)),
            max_bytes=1 << 20,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[{"topic": GUARDED, "partitions": [asked]}],
            forgotten_topics_data=[],
            rack_id="",
        )
        if int(reply.error_code):
            return
        (answer,) = reply.responses[0].partitions
        code = int(answer.error_code)
        if code:
            # The offset may be of a leader whose log was longer.
            self._positions.pop(broker, None)
        for batch in batches_of(answer.records or b""):
            for record in read_records(batch, limit=_UNPACKED_MAX):
                life.on_record_read(record.value or b"")
            self._positions[broker] = batch.header.last_offset + 1
        self._on_answer(life, sent_s, code, "read")

    def _on_answer(self, life: UserLife, sent_s: float, code: int, what: str) -> None:
        if self._has_wrong_password:
            self.history.violate("S3", f"{life.user} came in with a wrong password")
        life.on_answered(self._logged_in_s)
        if code == OK:
            self.history.counts[f"users: {what}"] += 1
            life.on_allowed(sent_s, what)
        elif code == TOPIC_AUTHORIZATION_FAILED:
            self.history.counts["users: denied"] += 1
            life.on_denied(sent_s, what)


class Stranger(SimClient):
    """Asks without having logged in: nobody answers."""

    async def work(self) -> None:
        while not self.is_winding_down:
            try:
                await self.ask(
                    self.any_broker(),
                    Api.METADATA,
                    12,
                    topics=None,
                    allow_auto_topic_creation=False,
                    include_topic_authorized_operations=False,
                )
            except PeerUnreachable:
                self.history.counts["strangers turned away"] += 1
            else:
                self.history.violate("S4", "a request before the login was answered")
            await self.pause(2_000.0)
