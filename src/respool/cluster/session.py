"""A broker's session with the metadata store: when it may act, and how it registers, loses its place and stops.

```
IDLE           begin: with a new incarnation
LEASING        the store has granted a lease
READING        no other run is registered under this id (else it is waited for)
STEPPING_BACK  nothing in the store comes from the run before
CLAIMING       the registry says that it runs
REGISTERING    the registration is written: its revision is the broker epoch
ACTIVE         announce_stop
STOPPING       it leads nothing any more, and its logs are closed
CLOSING        the registry says that it stopped cleanly; the lease is ended
```
What stands beside a phase leads to the next. A lease that has run out leads back to IDLE, until it is stopping.

The shell does what each event returns and reports how it went; what failed or has no answer is reported by
`on_refused`, and the own keys are read again. The time is that of a clock that does not jump, and goes on
while the machine sleeps.

**Fencing.** Others act without this broker once its lease has run out. The store counts from when it received the last
renewal, which is not before that was sent: so long the lease is valid, less what two clocks may differ by.
"""

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import TypeAlias
from uuid import UUID

from respool.cluster import keys
from respool.cluster.keys import BrokerRegistration
from respool.model.cluster import BrokerEndpoint, RegistryEntry
from respool.ports.metadata_store import Guard

# Whose lease is there after so many times a lease's time, renews it. More than one, for a store that elects itself
# another leader gives all of them their whole time again.
OUTLIVED_LEASES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    lease_ttl_ms: int = 6_000
    # Two clocks may differ in speed by this much.
    clock_drift: float = 0.02
    # Between asking whether one may act and having acted.
    pause_ms: int = 100
    # So often within the lease's time it is renewed.
    renewals: int = 4
    # So long one waits for another run's registration before looking again.
    wait_ms: int = 250

    def valid_for_ms(self, ttl_ms: int) -> int:
        """How long after a renewal was sent the lease cannot have run out."""
        return int(ttl_ms * (1 - self.clock_drift)) - self.pause_ms


class Phase(Enum):
    IDLE = auto()
    LEASING = auto()
    READING = auto()
    STEPPING_BACK = auto()
    CLAIMING = auto()
    REGISTERING = auto()
    ACTIVE = auto()
    STOPPING = auto()
    CLOSING = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteRun:
    """Write into the data folder, durably, which run it is that uses it now."""

    run: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantLease:
    ttl_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOwnKeys:
    """Read /brokers/<id> and /registry/<id>, after a while."""

    after_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EndLastRun:
    """End the lease of a run that is dead, and read the own keys again."""

    lease: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBack:
    """Do what `restart.resign_everywhere` says until it says nothing."""

    was_clean: bool
    # The data folder of the last run, if this one has another.
    left_folder: UUID | None = None
    # That of this one.
    folder: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    key: str
    value: bytes
    guards: tuple[Guard, ...]
    # None: the key stays when the lease runs out.
    lease: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StopActing:
    """Lead nothing, control nothing, acknowledge nothing more; then begin anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUp:
    """The broker cannot be part of the cluster."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokeLease:
    lease: int


Effect: TypeAlias = (
    NoteRun
    | GrantLease
    | ReadOwnKeys
    | EndLastRun
    | StepBack
    | Put
    | StopActing
    | GiveUp
    | RevokeLease
)


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
        """`clean_run` is the run that the data folder's clean-stop file names; None without one.

        `last_run` is the one that was noted in the data folder. This process has the folder's lock now, so it is dead.
        `folder` tells the folder from all others.
        """
        # Whoever asks may have read it from the store, where the run before this one is still registered: with that
        # run's epoch nobody would believe this one's fetches, and it would never be in sync again.
        self._me = replace(me, epoch=0, is_draining=False)
        self._settings = settings
        self._clean_run = clean_run
        self._last_run = last_run
        self._folder = folder
        # Of this process, however often it registers: only a crash loses something.
        self._run: UUID | None = None
        # Whether the registry may name it by now.
        self._has_claimed = False
        self._incarnation: UUID | None = None
        # Who is registered in its place, and for how long it has been waited for.
        self._other: UUID | None = None
        self._waited_ms = 0
        self._lease: int | None = None
        self._ttl_ms = settings.lease_ttl_ms
        self._sent_at_ms = 0
        self._registry = RegistryEntry()
        self._revision = 0
        self._controller_revision: int | None = None
        self.phase = Phase.IDLE
        # The broker epoch of the registration that holds now.
        self.epoch: int | None = None

    # When it may act

    def may_act(self, now_ms: int) -> bool:
        """Whether it may lead: acknowledge, serve reads, change an ISR. Ask at each of them."""
        is_registered = self.epoch is not None and self._lease is not None
        return is_registered and now_ms < self.fenced_at_ms

    def may_control(self, now_ms: int) -> bool:
        return self._controller_revision is not None and self.may_act(now_ms)

    @property
    def fenced_at_ms(self) -> int:
        """From then on the lease may have run out, unless it is renewed before."""
        return self._sent_at_ms + self._settings.valid_for_ms(self._ttl_ms)

    @property
    def renew_at_ms(self) -> int:
        return self._sent_at_ms + self._ttl_ms // self._settings.renewals

    @property
    def run(self) -> UUID | None:
        """What the clean-stop file is to name: the last run that was about to register, whose data is here."""
        return self._run if self._has_claimed else self._clean_run

    def is_ours(self, incarnation: UUID) -> bool:
        """Whether this process has registered so, or the last one in its data folder, which is dead."""
        return incarnation in (self._incarnation, self._run, self._last_run)

    @property
    def registration(self) -> Guard | None:
        """What holds in the store while this run is registered, and no other in its place; None: it is not."""
        if self.epoch is None:
            return None
        return Guard(key=keys.broker_key(self._me.id), revision=self._revision)

    @property
    def controller_revision(self) -> int | None:
        """The controller epoch, while this broker is the controller."""
        return self._controller_revision

    # Registering

    def begin(self, incarnation: UUID) -> list[Effect]:
        """Register, as a run that nobody has seen before: `incarnation` is new every time."""
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
        """What the store has of this broker; `revision` is that of its registration."""
        if self.phase is Phase.CLOSING:
            return self._close_again(registration, registry or RegistryEntry())
        self._expect(Phase.READING)
        self._registry = registry or RegistryEntry()
        if self._registry.is_removed:
            me = self._me.id
            why = (
                f"broker {me} has been removed from the cluster; let it in again with: respool cluster add {me} "
                "--etcd HOST:PORT"
            )
            return [GiveUp(why=why)]
        if registration is None:
            self.phase = Phase.STEPPING_BACK
            return [
                StepBack(
                    was_clean=self._was_clean(),
                    left_folder=self._left_folder(),
                    folder=self._folder,
                )
            ]
        if registration.incarnation == self._incarnation:
            # A write whose answer was lost has succeeded after all.
            return self._registered(registration.endpoint.epoch, revision)
        if registration.incarnation == self._last_run and registration.lease is not None:
            return [EndLastRun(lease=registration.lease)]
        return self._wait_for(registration)

    def _wait_for(self, other: BrokerRegistration) -> list[Effect]:
        """Another broker with the same id, or a run before this one, in another folder.

        If it is dead, its lease runs out; to push it aside would only make two live ones push each other. But one that
        lives with data of its own is no run of this one: to wait on would be to take its place the next time it stops,
        with a folder that has nothing of it.
        """
        if other.incarnation != self._other:
            self._other, self._waited_ms = other.incarnation, 0
        folder = self._registry.folder
        is_elsewhere = None not in (folder, self._folder) and folder != self._folder
        if is_elsewhere and self._waited_ms >= self._settings.lease_ttl_ms * OUTLIVED_LEASES:
            me, at = self._me.id, f"{other.endpoint.host}:{other.endpoint.port}"
            why = (
                f"another broker {me} runs at {at}, with another data folder: give this one a number of its own "
                "(--broker-id); or stop that one, if this is to take its place"
            )
            return [GiveUp(why=why)]
        self._waited_ms += self._settings.wait_ms
        return [ReadOwnKeys(after_ms=self._settings.wait_ms)]

    def on_stepped_back(self) -> list[Effect]:
        """Nothing in the store comes from a run before: from now on only a crash makes this one unclean."""
        self._expect(Phase.STEPPING_BACK)
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
                # Nobody has this id, and what was read of its last stop is still so.
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
        """A write of ours was refused, or nobody knows what became of it."""
        if self.phase in {Phase.IDLE, Phase.ACTIVE, Phase.STOPPING}:
            return []
        if self.phase is Phase.LEASING:
            return [GrantLease(ttl_ms=self._settings.lease_ttl_ms)]
        if self.phase is not Phase.CLOSING:
            self.phase = Phase.READING
        return [ReadOwnKeys(after_ms=self._settings.wait_ms)]

    # Staying

    def on_renewed(self, *, sent_at_ms: int) -> None:
        """The store has renewed the lease. Answers may come late and in any order."""
        self._sent_at_ms = max(self._sent_at_ms, sent_at_ms)

    def on_lost(self) -> list[Effect]:
        """The lease has run out; its keys are gone."""
        if self.phase is Phase.IDLE:
            return []
        self._lease = self._controller_revision = None
        if self.phase not in {Phase.STOPPING, Phase.CLOSING}:
            # Who is stopping anyway stays at it: the stop is clean all the same.
            self.phase = Phase.IDLE
            self.epoch = None
        return [StopActing()]

    def on_controller(self, revision: int | None) -> None:
        """This broker has become the controller, by a key on its lease with that revision; None: it is not any more."""
        assert revision is None or self.epoch is not None
        self._controller_revision = revision

    # Stopping

    def announce_stop(self) -> list[Effect]:
        """Tell everybody that this broker is about to stop, so that others take over what it leads.

        The registration gets another revision by that, so no leader's write that takes it into an ISR holds any more.
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
        """It leads nothing (or has waited for that long enough), and its logs are synced and closed.

        `registry` is what the store has of it now: an operator may have written there meanwhile.
        """
        assert self.phase in {Phase.STOPPING, Phase.CLOSING}, f"it is {self.phase.name}"
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
        """Somebody else wrote to the registry, or our write's answer was lost."""
        is_taken = registration is not None and registration.incarnation != self._incarnation
        if is_taken or registry.clean_epoch == self.epoch:
            return self._end_lease()
        return self.on_closed(registry)

    def _end_lease(self) -> list[Effect]:
        return [] if self._lease is None else [RevokeLease(lease=self._lease)]

    def _was_clean(self) -> bool:
        """Whether all is here that the last run had which was about to register.

        That may be this process itself: it has lost its lease, or its registration was refused. Or it is the one that
        the clean-stop file names. The file is the last that a clean stop writes, and gone with the next start, so who
        finds it has all that the run had. The store need not have heard of the stop. Anything else has lost records:
        also if this process was registered before, for another one may have had its place since, with another disk.
        """
        last = self._registry.run
        return last is not None and last in (self._run, self._clean_run)

    def _left_folder(self) -> UUID | None:
        """The data folder of the last run, if this one has another; None also where that run's is not known."""
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
        assert self.phase is phase, f"it is {self.phase.name}, not {phase.name}"
