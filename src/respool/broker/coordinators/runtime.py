"""Runs a coordinator's state machine on its partition: decide, append, replay, and answer once the records are
committed.

The machine itself is pure (`coordination/`); `coordinator_log.py` keeps it in step with the partition's log.
"""

import asyncio
import itertools
import logging
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from typing import Any, TypeGuard

from respool.broker.coordinators.coordinator_log import CoordinatorLog, CoordinatorState
from respool.broker.coordinators.coordinator_timers import CoordinatorTimers
from respool.broker.partitions.partition import Partition
from respool.broker.steady_clock import SteadyClock
from respool.coordination.decision import (
    Answer,
    Decision,
    RecordsProducer,
    SetTimer,
    Ticket,
    TimerKey,
)
from respool.coordination.record_bytes import CoordinatorRecordDamaged
from respool.log.partition_log import VerificationGuard
from respool.model.coordinator_errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
)
from respool.model.errors import (
    HandlesExhausted,
    NotEnoughReplicas,
    NotLeader,
    RequestError,
    StorageError,
    StorageFailed,
)
from respool.model.ids import LeaderEpoch, Offset
from respool.ports.offload import Offload
from respool.records.markers import EndTransactionMarker

logger = logging.getLogger(__name__)

# A timer that comes due while the broker may not act is postponed by this.
POSTPONED_MS = 1_000


class _State(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    STOPPED = "stopped"


class CoordinatorRuntime:
    def __init__(
        self,
        *,
        partition: Partition,
        machine: CoordinatorState,
        clock: SteadyClock,
        offload: Offload,
        may_act: Callable[[], bool] = lambda: True,
        on_failed: Callable[[], None] = lambda: None,
        on_effect: Callable[[Any], None] | None = None,
    ) -> None:
        """`on_failed` is called when the coordinator stops after a transient error: another one may replace it.

        `on_effect` gets the effects of decisions, each when its decision is committed.
        """
        self.machine = machine
        self._partition = partition
        self._clock = clock
        self._log = CoordinatorLog(
            partition=partition, machine=machine, clock=clock, offload=offload
        )
        self._may_act = may_act
        self._on_failed = on_failed
        self._on_effect = on_effect
        self._state = _State.LOADING
        self._tickets = itertools.count()
        # Requests that are being decided or that wait in the machine, by ticket.
        self._waiting: dict[Ticket, asyncio.Future[Any]] = {}
        self._timers = CoordinatorTimers(clock=clock, on_due=self._on_timer)

    @property
    def partition(self) -> Partition:
        return self._partition

    @property
    def leader_epoch(self) -> LeaderEpoch:
        return self._partition.leader_epoch

    @property
    def is_active(self) -> bool:
        return self._state is _State.ACTIVE

    @property
    def is_loading(self) -> bool:
        return self._state is _State.LOADING

    async def load(self) -> None:
        """Replay the whole partition, then begin to serve."""
        try:
            count = await self._log.load(lambda: self._state is _State.LOADING)
        except (RequestError, StorageError) as error:
            logger.error("%s: the coordinator cannot load its log: %s", self._partition.name, error)
            is_wanted = self._state is _State.LOADING
            self._state = _State.STOPPED
            if is_wanted and isinstance(error, HandlesExhausted):
                self._on_failed()
            elif is_wanted and _is_of_this_disk(error):
                # As for any other reader: another replica may be sound and become leader.
                self._partition.on_storage_error(error)
            return
        if self._state is not _State.LOADING:
            return
        self._state = _State.ACTIVE
        if count:
            logger.info("%s: replayed %d records", self._partition.name, count)
        self._carry_out(
            self.machine.on_loaded(now_ms=self._clock.now_ms(), wall_ms=self._clock.wall_ms())
        )

    def ask(self, request: Any, *, guard: VerificationGuard | None = None) -> "asyncio.Future[Any]":
        """Send a request to the machine. The future is done when the reply may be sent.

        With `guard` the request may begin a producer's transaction in this partition: see `begin_verification`.

        Raises:
            CoordinatorLoadInProgress: retry soon.
            NotCoordinator: this broker no longer serves the partition.
            CoordinatorNotAvailable: the request needs records to be written, and they would not be committed now.
        """
        self._check_active()
        if isinstance(request, self.machine.writing_requests):
            self._check_writable()
        ticket = Ticket(next(self._tickets))
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[ticket] = reply
        decision = self._decide(request, ticket)
        self._carry_out(decision, guard)
        return reply

    def report(self, request: Any) -> None:
        """Send the machine a request that needs no reply."""
        if self.is_active:
            ticket = Ticket(next(self._tickets))
            decision = self._decide(request, ticket)
            # The report may complete other requests that waited for it.
            answers = tuple(one for one in decision.answers if one.ticket != ticket)
            self._carry_out(replace(decision, answers=answers))

    def apply(self, decision: Decision) -> None:
        """Apply a decision without a request, such as one about deleted topics."""
        if self.is_active:
            self._carry_out(decision)

    def begin_verification(self, producer: RecordsProducer) -> VerificationGuard | None:
        """Return a guard for a producer's first records here: its coordinator must verify them before they are written.

        None if its transaction has already begun here.

        Raises:
            CoordinatorLoadInProgress, NotCoordinator, CoordinatorNotAvailable: this is not possible now.
        """
        self._check_active()
        try:
            return self._log.begin_verification(producer)
        except StorageFailed as error:
            # Use a coordinator's error code, for which clients look up the coordinator again.
            raise CoordinatorNotAvailable(str(error)) from error

    def cancel_verification(self, guard: VerificationGuard) -> None:
        """The producer's coordinator refused the verification."""
        self._log.cancel_verification(guard)

    def end_transaction(
        self, marker: EndTransactionMarker, *, needs_newer_epoch: bool = False
    ) -> Offset:
        """Write a transaction marker and replay it. It takes effect once all before the returned offset is committed.

        Raises:
            CoordinatorLoadInProgress, NotCoordinator: this is not possible now.
            RequestError: the marker is fenced, or cannot be written.
        """
        self._check_active()
        return self._log.append_marker(marker, needs_newer_epoch=needs_newer_epoch)

    def stop(self) -> None:
        """Stop serving; waiting clients get an error and look up the coordinator again."""
        self._state = _State.STOPPED
        self._timers.stop()
        self._fail_all(NotCoordinator(f"{self._partition.name} is not served here any more"))

    def _check_active(self) -> None:
        if self._state is _State.LOADING:
            raise CoordinatorLoadInProgress(f"{self._partition.name} is being loaded")
        if self._state is _State.STOPPED:
            raise NotCoordinator(f"{self._partition.name} is not served here")

    def _check_writable(self) -> None:
        # Otherwise clients would time out and retry, and each attempt would be written and wait here until enough
        # replicas are in sync. Checked before the machine decides: a decision must be carried out.
        leader = self._partition.leader
        if leader is None or not leader.is_leading:
            # The next append will fail, which stops the coordinator.
            return
        try:
            leader.check_writable()
        except NotEnoughReplicas as error:
            raise CoordinatorNotAvailable(f"{self._partition.name}: {error}") from error

    def _on_timer(self, key: TimerKey) -> None:
        if not self.is_active:
            return
        now_ms = self._clock.now_ms()
        if not self._may_act():
            # No client can reach this coordinator now, and no decision could be committed.
            self._timers.apply((SetTimer(key=key, due_at_ms=now_ms + POSTPONED_MS),))
            return
        decision = self.machine.on_timer(key, now_ms=now_ms, wall_ms=self._clock.wall_ms())
        self._carry_out(decision)

    def _decide(self, request: Any, ticket: Ticket) -> Decision:
        return self.machine.decide(
            request, ticket=ticket, now_ms=self._clock.now_ms(), wall_ms=self._clock.wall_ms()
        )

    def _carry_out(self, decision: Decision, guard: VerificationGuard | None = None) -> None:
        self._timers.apply(decision.timers)
        if decision.records and not self._append(decision, guard):
            return
        if not decision.answers and not decision.effects:
            return
        # This wait is needed even without records: the machine has replayed earlier appends, and its reply must not
        # reveal them while they could still be lost.
        release = _Release(self, decision)
        try:
            is_waiting = self._partition.waiters.wait_for_commit(
                self._partition.log.log_end, release
            )
        except RequestError as error:
            # The partition went offline: the last appends may never be committed.
            self._fail(error)
            return
        if not is_waiting:
            release.on_committed()
        elif not decision.records:
            self._partition.request_sync()

    def _append(self, decision: Decision, guard: VerificationGuard | None) -> bool:
        try:
            self._log.append(decision, guard)
        except StorageFailed as error:
            self._fail(error)
            return False
        except RequestError as error:
            if decision.producer is None:
                self._fail(error)
            else:
                # The producer is fenced, or its transaction is over: only its request fails.
                self.fail(decision.answers, error)
            return False
        return True

    def _fail(self, error: RequestError) -> None:
        if self._state is _State.STOPPED:
            # Already stopped: a failed append takes the partition offline, which fails the decisions that wait for
            # earlier appends, and one of them has stopped the coordinator.
            return
        # The machine is dropped: it may have state that was never written, and only what is in the log survives.
        # A change of leader is not an error: clients are redirected to the new leader.
        level = logging.INFO if isinstance(error, NotLeader) else logging.ERROR
        logger.log(level, "%s: the coordinator stops: %s", self._partition.name, error)
        self._state = _State.STOPPED
        self._timers.stop()
        self._fail_all(CoordinatorNotAvailable(f"{self._partition.name}: {error}"))
        self._on_failed()

    def release(self, decision: Decision) -> None:
        """The decision is committed: send its replies and carry out its effects."""
        self.answer(decision.answers)
        for effect in decision.effects:
            # If another coordinator serves the partition by now, that one carries out the effect.
            if self.is_active and self._on_effect is not None:
                self._on_effect(effect)

    def on_unknown(self, decision: Decision, error: RequestError) -> None:
        """The wait for the commit has ended without an answer; the decision may still be committed."""
        self.fail(decision.answers, CoordinatorNotAvailable(str(error)))
        if decision.effects and self.is_active:
            # Clients may retry, but only this coordinator carries out effects, and this broker may still be the leader:
            # perhaps its lease was only in doubt. A coordinator that replays the log finds out which effects are due.
            self._fail(error)

    def answer(self, answers: tuple[Answer, ...]) -> None:
        for answer in answers:
            waiting = self._waiting.pop(answer.ticket, None)
            # The client may have disconnected since.
            if waiting is not None and not waiting.done():
                waiting.set_result(answer.reply)

    def fail(self, answers: tuple[Answer, ...], error: RequestError) -> None:
        for answer in answers:
            waiting = self._waiting.pop(answer.ticket, None)
            if waiting is not None and not waiting.done():
                waiting.set_exception(error)

    def _fail_all(self, error: RequestError) -> None:
        waiting, self._waiting = self._waiting, {}
        for reply in waiting.values():
            if not reply.done():
                reply.set_exception(error)


class _Release:
    """A decision that waits for the high watermark."""

    __slots__ = ("_decision", "_runtime")

    def __init__(self, runtime: CoordinatorRuntime, decision: Decision) -> None:
        self._runtime = runtime
        self._decision = decision

    def on_committed(self) -> None:
        self._runtime.release(self._decision)

    def on_failed(self, error: RequestError) -> None:
        self._runtime.on_unknown(self._decision, error)


def _is_of_this_disk(error: RequestError | StorageError) -> TypeGuard[StorageError]:
    """True unless the record itself is damaged: that is the same on every replica, and each would go offline."""
    return isinstance(error, StorageError) and not isinstance(error, CoordinatorRecordDamaged)
