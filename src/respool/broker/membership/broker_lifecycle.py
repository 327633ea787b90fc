"""The broker's lifecycle in the cluster: registers it in the metadata store, renews its lease, revokes it on shutdown.

`cluster/session.py` decides; this class carries out the decisions and reports the store's refusals and lost replies to
the session. Leaders check `may_act` and the controller checks `may_control` before each action: a broker that cannot
renew its lease in time stops acting by itself, before another one can take over.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import NoReturn
from uuid import UUID

from respool.broker.metadata.catalog import Catalog
from respool.cluster import keys
from respool.cluster.keys import BrokerRegistration
from respool.cluster.own_replicas import resign_everywhere
from respool.cluster.session import Phase, Session
from respool.cluster.session_effects import (
    Effect,
    EndLastRun,
    GrantLease,
    NoteRun,
    Put,
    ReadOwnKeys,
    RefuseToJoin,
    Resign,
    RevokeLease,
    StopActing,
)
from respool.cluster.view import ClusterView
from respool.model.cluster import RegistryEntry
from respool.model.errors import RespoolError
from respool.model.ids import BrokerId
from respool.pacing.rate_limited_log import RateLimitedLog
from respool.ports.clock import Clock
from respool.ports.metadata_store import (
    Guard,
    GuardFailed,
    LeaseExpired,
    MetadataStore,
    StoredValue,
    StoreUnavailable,
)
from respool.ports.random_source import RandomSource

logger = logging.getLogger(__name__)

RETRY_DELAY_S = 0.25
# How many of the partitions that wait for a data folder are listed by name.
NAMED_MAX = 10


class NotAdmitted(RespoolError):
    """The broker may not join the cluster: it was removed, or another one uses its broker id."""


class BrokerLifecycle:
    def __init__(
        self,
        *,
        me: BrokerId,
        session: Session,
        store: MetadataStore,
        catalog: Catalog,
        clock: Clock,
        rng: RandomSource,
        on_stop_acting: Callable[[], None],
        note_run: Callable[[UUID], Awaitable[None]],
        on_acting_again: Callable[[], None] = lambda: None,
    ) -> None:
        """`note_run` records the id of this run in the data folder.

        `on_stop_acting` is called when the lease may be lost: from then on the broker must not acknowledge anything.
        `on_acting_again` is called when the lease was in doubt for a while and is still valid."""
        self._me = me
        self._session = session
        self._store = store
        self._catalog = catalog
        self._clock = clock
        self._rng = rng
        self._on_stop_acting = on_stop_acting
        self._on_acting_again = on_acting_again
        self._note_run = note_run
        # The last run of another process with this broker id for which a warning was logged.
        self._warned_of: UUID | None = None
        self._lease = 0
        self._is_lease_doubted = asyncio.Event()
        self._inaction = RateLimitedLog(logger)

    @property
    def epoch(self) -> int | None:
        """The broker epoch; None while the broker is not registered."""
        return self._session.epoch

    @property
    def registration(self) -> Guard | None:
        """A guard for writes that only this run may make; None while the broker is not registered."""
        return self._session.registration

    @property
    def run(self) -> UUID | None:
        """The run id for the data folder's clean-stop file."""
        return self._session.run

    @property
    def is_stopping(self) -> bool:
        """True once `announce_stop` was called."""
        return self._session.phase in (Phase.STOPPING, Phase.CLOSING)

    def may_act(self) -> bool:
        return self._session.may_act(self._clock.boot_ms())

    def may_control(self) -> bool:
        return self._session.may_control(self._clock.boot_ms())

    @property
    def controller_revision(self) -> int:
        """The revision that guards the controller's writes."""
        assert self._session.controller_revision is not None
        return self._session.controller_revision

    async def win_election(self) -> None:
        """Become the controller if there is none.

        Raises:
            GuardFailed: another broker is the controller.
            LeaseExpired, StoreUnavailable: the outcome is unknown; check again.
        """
        epoch = self._session.epoch
        revision = await self._catalog.put(
            keys.CONTROLLER, keys.encode_controller(self._me), revision=0, lease=self._lease
        )
        if self._session.epoch != epoch:
            raise LeaseExpired("won the controller election on a lease that has expired since")
        self._session.on_controller(revision)

    def recognise_election(self, key: StoredValue) -> bool:
        """Become the controller if the controller key is this run's own: its write succeeded and the reply was lost.

        No other run writes keys with this broker's id after this run's registration.
        """
        epoch = self._session.epoch
        if epoch is None or key.revision <= epoch:
            return False
        if keys.decode_controller(key.value) != self._me:
            return False
        self._session.on_controller(key.revision)
        return True

    async def join(self) -> None:
        """Register; return when that is done, no matter how long the store is unavailable.

        Raises:
            NotAdmitted: the broker may not join.
        """
        await self._carry_out(self._session.begin(self._rng.uuid()))

    def doubt_lease(self) -> None:
        """Check the lease now and not when its renewal is due, since the registration seems to be gone."""
        self._is_lease_doubted.set()

    async def stay(self) -> NoReturn:
        """Keep renewing the lease; register again whenever it is lost."""
        while True:
            await self._wait_until_doubted(self._session.renew_at_ms)
            await self._renew()
            if self._session.phase is Phase.IDLE:
                logger.warning("broker %d has lost its lease and registers again", self._me)
                await self.join()

    async def announce_stop(self) -> None:
        """Announce the shutdown, so that other brokers take over leadership."""
        await self._carry_out(self._session.announce_stop())

    async def leave(self) -> None:
        """Record a clean shutdown in the store and revoke the lease. All logs are synced and closed."""
        while True:
            try:
                stored = await self._store.get(keys.registry_key(self._me))
                break
            except StoreUnavailable as error:
                logger.warning("the metadata store does not answer: %s", error)
                await asyncio.sleep(RETRY_DELAY_S)
        entry = RegistryEntry()
        if stored is not None:
            entry = keys.decode_registry(stored.value, revision=stored.revision)
        await self._carry_out(self._session.on_closed(entry))

    async def _renew(self) -> None:
        sent_at_ms = self._clock.boot_ms()
        try:
            is_alive = await self._store.keep_alive(self._lease)
        except StoreUnavailable as error:
            if not self.may_act():
                self._inaction.log(
                    logging.WARNING,
                    "broker %d acts no more: its lease may be over: %s",
                    self._me,
                    error,
                    now_s=asyncio.get_running_loop().time(),
                )
                self._on_stop_acting()
            await asyncio.sleep(RETRY_DELAY_S)
            return
        if self._inaction.clear():
            logger.info("broker %d reaches the metadata store again", self._me)
        if is_alive:
            could_act = self.may_act()
            self._session.on_renewed(sent_at_ms=sent_at_ms)
            if not could_act and self.may_act():
                self._on_acting_again()
        else:
            await self._carry_out(self._session.on_lost())
            if self.is_stopping:
                # There is no lease left to renew, and nothing else to do.
                await asyncio.sleep(RETRY_DELAY_S)

    async def _carry_out(self, effects: Iterable[Effect]) -> None:
        waiting = deque(effects)
        while waiting:
            waiting.extend(await self._do(waiting.popleft()))

    async def _do(self, effect: Effect) -> list[Effect]:
        try:
            return await self._try(effect)
        except (GuardFailed, StoreUnavailable) as error:
            logger.info("broker %d, %s: %s", self._me, self._session.phase.name, error)
            await asyncio.sleep(RETRY_DELAY_S)
            return self._session.on_refused()
        except LeaseExpired:
            self._session.on_lost()
            return self._session.begin(self._rng.uuid())

    async def _try(self, effect: Effect) -> list[Effect]:
        session = self._session
        match effect:
            case NoteRun(run=run):
                await self._note_run(run)
            case GrantLease(ttl_ms=ttl_ms):
                sent_at_ms = self._clock.boot_ms()
                self._lease = await self._store.grant_lease(ttl_ms)
                return session.on_lease_granted(self._lease, ttl_ms=ttl_ms, sent_at_ms=sent_at_ms)
            case ReadOwnKeys(after_ms=after_ms):
                await asyncio.sleep(after_ms / 1000)
                return await self._read_own_keys()
            case EndLastRun(lease=lease):
                await self._store.revoke_lease(lease)
                return await self._read_own_keys()
            case Resign():
                await self._step_back(effect)
                return session.on_stepped_back()
            case Put():
                return await self._put(effect)
            case StopActing():
                self._on_stop_acting()
            case RevokeLease(lease=lease):
                await self._store.revoke_lease(lease)
            case RefuseToJoin(why=why):
                raise NotAdmitted(why)
        return []

    async def _read_own_keys(self) -> list[Effect]:
        stored = await self._store.get(keys.broker_key(self._me))
        registry = await self._store.get(keys.registry_key(self._me))
        registration = None
        if stored is not None:
            registration = keys.decode_broker(self._me, stored.value, revision=stored.revision)
            self._warn_of_other_broker(registration)
        entry = None
        if registry is not None:
            entry = keys.decode_registry(registry.value, revision=registry.revision)
        return self._session.on_own_keys(
            registration, entry, revision=0 if stored is None else stored.revision
        )

    def _warn_of_other_broker(self, registration: BrokerRegistration) -> None:
        """Warn once per run: two processes started with the same broker id may compete for a long time."""
        other = registration.incarnation
        if self._session.is_ours(other) or other == self._warned_of:
            return
        self._warned_of = other
        logger.warning(
            "broker %d is registered already, at %s:%d; this one waits until that one has stopped, or its lease has "
            "run out, and does not start if that one keeps running with another data folder. If it is another broker, "
            "give this one a number of its own (--broker-id)",
            self._me,
            registration.endpoint.host,
            registration.endpoint.port,
        )

    async def _step_back(self, how: Resign) -> None:
        """Resign from what an earlier run led or held, until nothing is left in the store."""
        while True:
            view = await self._catalog.read_view()
            writes = resign_everywhere(
                view.topics.values(), self._me, was_clean=how.was_clean, left_folder=how.left_folder
            )
            if not writes:
                break
            for write in writes:
                await self._catalog.write(write)
        if how.left_folder is not None:
            self._warn_of_other_folder(view, how.folder)

    def _warn_of_other_folder(self, view: ClusterView, mine: UUID | None) -> None:
        logger.warning(
            "broker %d has another data folder than in its last run; it copies what others have",
            self._me,
        )
        waiting: dict[UUID, list[str]] = {}
        for topic, number, image in view.partitions():
            if image.last_leader == self._me and image.last_folder not in (None, mine):
                assert image.last_folder is not None
                waiting.setdefault(image.last_folder, []).append(f"{topic.name}-{number}")
        for folder, names in waiting.items():
            more = "" if len(names) <= NAMED_MAX else f" and {len(names) - NAMED_MAX} more"
            logger.warning(
                "%s%s stay offline: nobody else is known to have all of it. Start broker %d with its data folder whose "
                "file folder-id says %s; if that is lost, elect others (respool cluster elect TOPIC --unclean): what "
                "only it had is lost then, too",
                ", ".join(names[:NAMED_MAX]),
                more,
                self._me,
                folder.hex,
            )

    async def _put(self, put: Put) -> list[Effect]:
        revision = await self._store.transact(
            guards=put.guards, puts={put.key: put.value}, lease=put.lease
        )
        if put.key == keys.registry_key(self._me):
            return self._session.on_registry_written(revision)
        return self._session.on_registration_written(revision)

    async def _wait_until_doubted(self, at_ms: int) -> None:
        """Wait until the lease is in doubt, or until `at_ms`."""
        try:
            async with asyncio.timeout(max(0, at_ms - self._clock.boot_ms()) / 1000):
                await self._is_lease_doubted.wait()
        except TimeoutError:
            pass
        self._is_lease_doubted.clear()
