"""A broker's session with the metadata store: its lease, its registration and its shutdown.

```
IDLE           begin: with a new incarnation
LEASING        the store has granted a lease
READING        no other process is registered under this id (otherwise wait for it)
RESIGNING      the store has nothing left from the previous process
CLAIMING       the registry has this process
REGISTERING    the registration is written; its revision is the broker epoch
ACTIVE         announce_stop
STOPPING       it leads nothing, and its logs are closed
CLOSING        the registry has the clean shutdown; the lease is revoked
```
The condition beside each phase leads to the next phase. An expired lease leads to IDLE, unless the broker is stopping.

The caller carries out the effects of each event and reports their results. It reports failed or unanswered effects by
`on_refused`, after which the broker's keys are read again. The clock is monotonic, also while the machine sleeps.

**Fencing.** Other brokers take over as soon as this broker's lease has expired. The store counts the time to live from
the moment it receives a renewal, which is never before the broker has sent it. So the lease is valid for that time
after the renewal was sent, less the maximum clock drift.
"""

from dataclasses import dataclass, replace
from enum import Enum, auto
from uuid import UUID

from respool.cluster import keys
from respool.cluster.keys import BrokerRegistration
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
from respool.model.cluster import BrokerEndpoint, RegistryEntry
from respool.ports.metadata_store import Guard

# A lease that still exists after this multiple of its time to live is being renewed. More than 1, because a store that
# elects a new leader extends all leases by their full time to live.
OUTLIVED_LEASES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    lease_ttl_ms: int = 6_000
    # The maximum difference in speed between two clocks.
    clock_drift: float = 0.02
    # The maximum delay between the check of `may_act` and the action.
    pause_ms: int = 100
    # Number of renewals within the lease's time to live.
    renewals: int = 4
    # The delay before another process's registration is read again.
    wait_ms: int = 250

    def valid_for_ms(self, ttl_ms: int) -> int:
        """How long the lease is certainly valid after a renewal was sent."""
        return int(ttl_ms * (1 - self.clock_drift)) - self.pause_ms


class Phase(Enum):
    IDLE = auto()
    LEASING = auto()
    READING = auto()
    RESIGNING = auto()
    CLAIMING = auto()
    REGISTERING = auto()
    ACTIVE = auto()
    STOPPING = auto()
    CLOSING = auto()


class Session:
    def __init__(
        self,
        me: BrokerEndpoint,
        *,
        settings: SessionSettings,
        clean_run: UUID | None,
        last_run: UUID | None = None,
        folder: UUID | None = None,
    ) -> None:
        """`clean_run` is the process named in the data folder's clean-shutdown file; None without that file.

        `last_run` is the last process noted in the data folder. This process holds the folder's lock, so that process
        is dead. `folder` is the unique id of the data folder.
        """
        # The endpoint may have been read from the store, where the previous process is still registered. With that
        # broker epoch, leaders would refuse this broker's fetches, and it would never join an ISR again.
        self._me = replace(me, epoch=0, is_draining=False)
        self._settings = settings
        self._clean_run = clean_run
        self._last_run = last_run
        self._folder = folder
        # The id of this process, for all its registrations: only a crash loses records.
        self._run: UUID | None = None
        # True once the registry may name this process.
        self._has_claimed = False
        self._incarnation: UUID | None = None
        # The other registration under this id, and how long this process has waited for it.
        self._other: UUID | None = None
        self._waited_ms = 0
        self._lease: int | None = None
        self._ttl_ms = settings.lease_ttl_ms
        self._sent_at_ms = 0
        self._registry = RegistryEntry()
        self._revision = 0
        self._controller_revision: int | None = None
        self.phase = Phase.IDLE
        # The broker epoch of the current registration.
        self.epoch: int | None = None

    # -- the lease

    def may_act(self, now_ms: int) -> bool:
        """True while the lease is valid: check before each acknowledgement, read and ISR change."""
        is_registered = self.epoch is not None and self._lease is not None
        return is_registered and now_ms < self.fenced_at_ms

    def may_control(self, now_ms: int) -> bool:
        return self._controller_revision is not None and self.may_act(now_ms)

    @property
    def fenced_at_ms(self) -> int:
        """When the lease may expire if it is not renewed before."""
        return self._sent_at_ms + self._settings.valid_for_ms(self._ttl_ms)

    @property
    def renew_at_ms(self) -> int:
        return self._sent_at_ms + self._ttl_ms // self._settings.renewals

    @property
    def run(self) -> UUID | None:
        """The process to name in the clean-shutdown file: the last one that was about to register with this data."""
        return self._run if self._has_claimed else self._clean_run

    def is_ours(self, incarnation: UUID) -> bool:
        """True for a registration by this process, or by the last process with this data folder, which is dead."""
        return incarnation in (self._incarnation, self._run, self._last_run)

    @property
    def registration(self) -> Guard | None:
        """The guard that holds while this registration is current; None if this process is not registered."""
        if self.epoch is None:
            return None
        return Guard(key=keys.broker_key(self._me.id), revision=self._revision)

    @property
    def controller_revision(self) -> int | None:
        """The controller epoch if this broker is the controller; else None."""
        return self._controller_revision

    # -- registering

    def begin(self, incarnation: UUID) -> list[Effect]:
        """Start to register; `incarnation` is a new id for each registration."""
        self._expect(Phase.IDLE)
        self._incarnation = incarnation
        self._run = self._run or incarnation
        self.phase = Phase.LEASING
        return [NoteRun(run=incarnation), GrantLease(ttl_ms=self._settings.lease_ttl_ms)]

    def on_lease_granted(self, lease: int, *, ttl_ms: int, sent_at_ms: int) -> list[Effect]:
        self._expect(Phase.LEASING)
        self._lease, self._ttl_ms, self._sent_at_ms = lease, ttl_ms, sent_at_ms
        self.phase = Phase.READING
        return [ReadOwnKeys()]

    def on_own_keys(
        self,
        registration: BrokerRegistration | None,
        registry: RegistryEntry | None,
        *,
        revision: int = 0,
    ) -> list[Effect]:
        """This broker's keys were read from the store; `revision` is that of its registration."""
        if self.phase is Phase.CLOSING:
            return self._close_again(registration, registry or RegistryEntry())
        self._expect(Phase.READING)
        self._registry = registry or RegistryEntry()
        if self._registry.is_removed:
            me = self._me.id
            why = (
                f"broker {me} has been removed from the cluster; add it again with: respool cluster add {me} "
                "--etcd HOST:PORT"
            )
            return [RefuseToJoin(why=why)]
        if registration is None:
            self.phase = Phase.RESIGNING
            return [
                Resign(
                    was_clean=self._was_clean(),
                    left_folder=self._left_folder(),
                    folder=self._folder,
                )
            ]
        if registration.incarnation == self._incarnation:
            # The write succeeded, although its reply was lost.
            return self._registered(registration.endpoint.epoch, revision)
        if registration.incarnation == self._last_run and registration.lease is not None:
            return [EndLastRun(lease=registration.lease)]
        return self._wait_for(registration)

    def _wait_for(self, other: BrokerRegistration) -> list[Effect]:
        """Wait for another broker with the same id, or a previous process of this one with another data folder.

        If it is dead, its lease expires. If this process removed its registration instead, two live brokers could
        remove each other. If it is alive with its own data, it is another broker: to wait longer would mean to replace
        it at its next stop, with a folder that has none of its data.
        """
        if other.incarnation != self._other:
            self._other, self._waited_ms = other.incarnation, 0
        folder = self._registry.folder
        is_elsewhere = None not in (folder, self._folder) and folder != self._folder
        if is_elsewhere and self._waited_ms >= self._settings.lease_ttl_ms * OUTLIVED_LEASES:
            me, at = self._me.id, f"{other.endpoint.host}:{other.endpoint.port}"
            why = (
                f"another broker {me} runs at {at}, with another data folder: give this one an id of its own "
                "(--broker-id); or stop the other one, if this one is to replace it"
            )
            return [RefuseToJoin(why=why)]
        self._waited_ms += self._settings.wait_ms
        return [ReadOwnKeys(after_ms=self._settings.wait_ms)]

    def on_stepped_back(self) -> list[Effect]:
        """The store has nothing left from previous processes: from now on only a crash makes this one unclean."""
        self._expect(Phase.RESIGNING)
        entry = replace(
            self._registry,
            rack=self._me.rack,
            host=self._me.host,
            port=self._me.port,
            clean_epoch=None,
            run=self._run,
            folder=self._folder,
        )
        self._registry, before = entry, self._registry
        self._has_claimed = True
        self.phase = Phase.CLAIMING
        return [self._put_registry(before.revision)]

    def on_registry_written(self, revision: int) -> list[Effect]:
        if self.phase is Phase.CLOSING:
            return self._end_lease()
        self._expect(Phase.CLAIMING)
        assert self._incarnation is not None
        self._registry = replace(self._registry, revision=revision)
        self.phase = Phase.REGISTERING
        return [
            self._put_registration(
                self._me,
                # No broker is registered with this id, and the registry is unchanged since it was read.
                Guard(key=keys.broker_key(self._me.id), revision=0),
                Guard(key=keys.registry_key(self._me.id), revision=revision),
            )
        ]

    def on_registration_written(self, revision: int) -> list[Effect]:
        if self.phase is Phase.STOPPING:
            self._revision = revision
            return []
        self._expect(Phase.REGISTERING)
        return self._registered(revision, revision)

    def on_refused(self) -> list[Effect]:
        """A write of this broker was rejected, or its outcome is unknown."""
        if self.phase in {Phase.IDLE, Phase.ACTIVE, Phase.STOPPING}:
            return []
        if self.phase is Phase.LEASING:
            return [GrantLease(ttl_ms=self._settings.lease_ttl_ms)]
        if self.phase is not Phase.CLOSING:
            self.phase = Phase.READING
        return [ReadOwnKeys(after_ms=self._settings.wait_ms)]

    # -- registered

    def on_renewed(self, *, sent_at_ms: int) -> None:
        """The store has renewed the lease. Replies may be late and out of order."""
        self._sent_at_ms = max(self._sent_at_ms, sent_at_ms)

    def on_lost(self) -> list[Effect]:
        """The lease has expired, and its keys are deleted."""
        if self.phase is Phase.IDLE:
            return []
        self._lease = self._controller_revision = None
        if self.phase not in {Phase.STOPPING, Phase.CLOSING}:
            # A broker that is stopping continues to stop: its shutdown is clean all the same.
            self.phase = Phase.IDLE
            self.epoch = None
        return [StopActing()]

    def on_controller(self, revision: int | None) -> None:
        """This broker is the controller, by a key on its lease with this revision; None: it is not."""
        assert revision is None or self.epoch is not None
        self._controller_revision = revision

    # -- stopping

    def announce_stop(self) -> list[Effect]:
        """Announce the shutdown, so that other brokers take over its leaderships.

        This changes the revision of the registration, so pending writes that would add the broker to an ISR fail.
        """
        self._expect(Phase.ACTIVE)
        assert self.epoch is not None
        self.phase = Phase.STOPPING
        return [
            self._put_registration(
                replace(self._me, epoch=self.epoch, is_draining=True),
                Guard(key=keys.broker_key(self._me.id), revision=self._revision),
            )
        ]

    def on_closed(self, registry: RegistryEntry) -> list[Effect]:
        """The broker leads nothing (or the wait for that has timed out), and its logs are synced and closed.

        `registry` is the current entry in the store, which an operator may have changed.
        """
        assert self.phase in {Phase.STOPPING, Phase.CLOSING}, f"phase is {self.phase.name}"
        assert self.epoch is not None
        self.phase = Phase.CLOSING
        self._registry = replace(registry, clean_epoch=self.epoch)
        return [self._put_registry(registry.revision)]

    def _registered(self, epoch: int, revision: int) -> list[Effect]:
        self.phase = Phase.ACTIVE
        self.epoch, self._revision = epoch, revision
        return []

    def _close_again(
        self, registration: BrokerRegistration | None, registry: RegistryEntry
    ) -> list[Effect]:
        """Another writer changed the registry, or the reply to this broker's write was lost."""
        is_taken = registration is not None and registration.incarnation != self._incarnation
        if is_taken or registry.clean_epoch == self.epoch:
            return self._end_lease()
        return self.on_closed(registry)

    def _end_lease(self) -> list[Effect]:
        return [] if self._lease is None else [RevokeLease(lease=self._lease)]

    def _was_clean(self) -> bool:
        """True if this data folder has all records of the last process that was about to register.

        That may be this process itself, after a lost lease or a rejected registration; or the process that the
        clean-shutdown file names. A clean shutdown writes that file last, and the next start removes it, so a process
        that finds it has all records. The store need not know of the shutdown. In all other cases records may be lost,
        even if this process was registered before, because another one may have replaced it with another disk.
        """
        last = self._registry.run
        return last is not None and last in (self._run, self._clean_run)

    def _left_folder(self) -> UUID | None:
        """The data folder of the last process, if this one uses another; None if it is the same or unknown."""
        last = self._registry.folder
        return last if last != self._folder else None

    def _put_registry(self, revision: int) -> Put:
        key = keys.registry_key(self._me.id)
        return Put(
            key=key,
            value=keys.encode_registry(self._registry),
            guards=(Guard(key=key, revision=revision),),
        )

    def _put_registration(self, endpoint: BrokerEndpoint, *guards: Guard) -> Put:
        assert self._incarnation is not None
        registration = BrokerRegistration(
            endpoint=endpoint, incarnation=self._incarnation, lease=self._lease
        )
        return Put(
            key=keys.broker_key(self._me.id),
            value=keys.encode_broker(registration),
            guards=guards,
            lease=self._lease,
        )

    def _expect(self, phase: Phase) -> None:
        assert self.phase is phase, f"phase is {self.phase.name}, not {phase.name}"
