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

from respool.broker.coordinators.coordinator_log import CoordinatorLog, Machine
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

# What is due while the broker may not act is looked at again after this.
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
        machine: Machine,
        clock: SteadyClock,
        offload: Offload,
        may_act: Callable[[], bool] = lambda: True,
        on_failed: Callable[[], None] = lambda: None,
        on_effect: Callable[[Any], None] | None = None,
    ) -> None:
        """`on_failed` is called when the coordinator stopped for a transient error: another may replace it.

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
        # Requests that are decided on or wait in the machine, by ticket.
        self._waiting: dict[Ticket, asyncio.Future[Any]] = {}
        self._timers = CoordinatorTimers(clock=clock, on_due=self._on_timer)

    @property
    def leader_epoch(self) -> LeaderEpoch:
        return self._partition.leader_epoch

    @property
    def is_active(self) -> bool:
        return self._state is _State.ACTIVE

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
                # As for any other reader: another replica may be sound, and lead.
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
        """Put a request to the machine; its reply comes when it is safe to give.

        With `guard` the request may begin a producer's transaction in this partition: see `begin_verification`.

        Raises:
            CoordinatorLoadInProgress: ask again soon.
            NotCoordinator: this broker serves the partition no longer.
            CoordinatorNotAvailable: what must be written for it would not be committed now.
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
        """Tell the machine something that it need not answer."""
        if self.is_active:
            ticket = Ticket(next(self._tickets))
            decision = self._decide(request, ticket)
            # Others may be answered with it, who waited for what is reported.
            answers = tuple(one for one in decision.answers if one.ticket != ticket)
            self._carry_out(replace(decision, answers=answers))

    def tell(self, decision: Decision) -> None:
        """Apply a decision without a request, such as one about deleted topics."""
        if self.is_active:
            self._carry_out(decision)

    def begin_verification(self, producer: RecordsProducer) -> VerificationGuard | None:
        """What a producer's first records here must be asked with, once its coordinator says that it may write here.

        None: its transaction has begun here already.

        Raises:
            CoordinatorLoadInProgress, NotCoordinator, CoordinatorNotAvailable: it cannot be done now.
        """
        self._check_active()
        try:
            return self._log.begin_verification(producer)
        except StorageFailed as error:
            # In the words of a coordinator: clients look for it again.
            raise CoordinatorNotAvailable(str(error)) from error

    def cancel_verification(self, guard: VerificationGuard) -> None:
        """The producer's coordinator refused what `begin_verification` was asked for."""
        self._log.cancel_verification(guard)

    def end_transaction(
        self, marker: EndTransactionMarker, *, needs_newer_epoch: bool = False
    ) -> Offset:
        """Write a transaction's end here, and take it over; it counts when all before the offset returned is committed.

        Raises:
            CoordinatorLoadInProgress, NotCoordinator: it cannot be done now.
            RequestError: the marker is fenced, or cannot be written.
        """
        self._check_active()
        return self._log.append_marker(marker, needs_newer_epoch=needs_newer_epoch)

    def stop(self) -> None:
        """Stop serving; waiting clients look the coordinator up again."""
        self._state = _State.STOPPED
        self._timers.stop()
        self._fail_all(NotCoordinator(f"{self._partition.name} is not served here any more"))

    def _check_active(self) -> None:
        if self._state is _State.LOADING:
            raise CoordinatorLoadInProgress(f"{self._partition.name} is being loaded")
        if self._state is _State.STOPPED:
            raise NotCoordinator(f"{self._partition.name} is not served here")

    def _check_writable(self) -> None:
        # Whoever waited would time out and send it again, and each try would be written, and wait here, until enough
        # replicas are in sync. Looked at before the machine decides: after that it must be carried out.
        leader = self._partition.leader
        if leader is None or not leader.is_leading:
            # The next append fails, and the coordinator stops then.
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
            # Nobody can be heard of now, and what is decided could not be committed.
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
        # Also without records: the machine has replayed earlier appends, and its reply must not reveal them while they
        # could still be lost.
        release = _Release(self, decision)
        try:
            is_waiting = self._partition.waiters.wait_for_commit(
                self._partition.log.log_end, release
            )
        except RequestError as error:
            # The partition went offline: what was appended last may never be committed.
            self._fail(error)
            return
        if not is_waiting:
            release.on_committed()
        elif not decision.records:
            self._partition.hurry()

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
                # The producer is fenced, or its transaction is over: its request comes to nothing.
                self.fail(decision.answers, error)
            return False
        return True

    def _fail(self, error: RequestError) -> None:
        if self._state is _State.STOPPED:
            # An append that fails takes the partition offline, and who waits for an earlier one has heard of it first.
            return
        # The machine may have moved on with what need not survive; only the log knows what does.
        # Another leader is no error: clients are redirected to it.
        level = logging.INFO if isinstance(error, NotLeader) else logging.ERROR
        logger.log(level, "%s: the coordinator stops: %s", self._partition.name, error)
        self._state = _State.STOPPED
        self._timers.stop()
        self._fail_all(CoordinatorNotAvailable(f"{self._partition.name}: {error}"))
        self._on_failed()

    def release(self, decision: Decision) -> None:
        """The decision is committed."""
        self.answer(decision.answers)
        for effect in decision.effects:
            # Another may serve the partition by now, and does it.
            if self.is_active and self._on_effect is not None:
                self._on_effect(effect)

    def on_unknown(self, decision: Decision, error: RequestError) -> None:
        """The wait for the decision's commit has ended; it may be committed all the same."""
        self.fail(decision.answers, CoordinatorNotAvailable(str(error)))
        if decision.effects and self.is_active:
            # Who asked may ask again. Effects are nobody's but ours, and the broker may go on leading: it only could
            # not be sure of its lease. Whoever reads the log anew finds out what is to be done.
            self._fail(error)

    def answer(self, answers: tuple[Answer, ...]) -> None:
        for answer in answers:
            waiting = self._waiting.pop(answer.ticket, None)
            # The client may have gone meanwhile.
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
    """Not what a coordinator wrote and nobody can read: it is the same on every replica, and each would go offline."""
    return isinstance(error, StorageError) and not isinstance(error, CoordinatorRecordDamaged)
