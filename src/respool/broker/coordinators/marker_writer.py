"""Writes transaction markers to the partitions of finished transactions.

The outcome is committed before the markers are written, and final. So a marker that cannot be written now is retried: a
partition may be offline, a disk full, a group coordinator still loading. A deleted partition needs no marker. For
partitions that other brokers lead, the marker is sent to them (`remote_markers.py`).

A marker counts as written when it is durable, whatever respool.flush says. The coordinator then forgets the
transaction; a marker lost in a power cut after that would never be written again, and the aborted records would become
part of the producer's next transaction in that partition.
"""

import asyncio
import logging
from collections.abc import Callable

from respool.broker.coordinators.remote_markers import RemoteMarkers
from respool.broker.coordinators.runtimes import CoordinatorRuntimes
from respool.broker.layouts.layouts import Layouts
from respool.broker.layouts.succession_markers import Ends, append_marker_to_all
from respool.broker.partitions.partition import Partition
from respool.broker.partitions.registry import Partitions
from respool.coordination.transactions.pending_markers import (
    LeaderOf,
    NextStep,
    PendingMarkers,
)
from respool.model.coordinator_errors import TransactionCoordinatorFenced
from respool.model.errors import (
    InvalidProducerEpoch,
    NotLeader,
    PolicyViolation,
    RequestError,
    UnknownTopicOrPartition,
)
from respool.model.ids import Offset, TopicPartition
from respool.model.internal_topics import TRANSACTION_STATE
from respool.pacing.backoff import Backoff
from respool.ports.clock import Clock
from respool.records.markers import EndTransactionMarker

logger = logging.getLogger(__name__)

RETRY_S = Backoff(first=0.5, longest=10.0)


class MarkerWriter:
    def __init__(
        self,
        *,
        partitions: Partitions,
        offsets: CoordinatorRuntimes,
        clock: Clock,
        layouts: Layouts,
        remote: RemoteMarkers | None = None,
    ) -> None:
        """`offsets` are the group coordinators: they must be notified when a transaction with offsets in it ends.

        `remote` is None for a single broker.
        """
        self._layouts = layouts
        self._partitions = partitions
        self._offsets = offsets
        self._clock = clock
        self.remote = remote
        self._retries: dict[asyncio.TimerHandle, _Marking] = {}

    def append(
        self,
        marker: EndTransactionMarker,
        name: TopicPartition,
        *,
        needs_newer_epoch: bool = False,
    ) -> Ends:
        """Write the marker. It is durable once everything before the returned offsets is on disk.

        Raises:
            NotLeader: another broker leads the partition.
            RequestError: the marker is not written.
        """
        if name.topic == TRANSACTION_STATE:
            # Coordinators write to this topic, and never in transactions.
            raise UnknownTopicOrPartition(f"no transaction can have written to {name.topic}")
        succession = self._layouts.succession_for_markers(name)
        if succession is not None:
            return append_marker_to_all(
                succession, marker, now_ms=self._clock.now_ms(), needs_newer_epoch=needs_newer_epoch
            )
        partition = self._partitions.find_leader(*name)
        if name.topic == self._offsets.topic:
            runtime = self._offsets.at(name.partition)
            end = runtime.end_transaction(marker, needs_newer_epoch=needs_newer_epoch)
            return ((partition, end),)
        appended = partition.append_marker(
            marker, now_ms=self._clock.now_ms(), needs_newer_epoch=needs_newer_epoch
        )
        return ((partition, Offset(appended.last_offset + 1)),)

    def find(self, name: TopicPartition) -> tuple[Partition, ...]:
        """The partitions that get the markers for this one: several, in a topic that was shrunk."""
        succession = self._layouts.succession_for_markers(name)
        if succession is not None:
            return succession.logs
        return (self._partitions.find_leader(*name),)

    def has_open_transaction(self, name: TopicPartition, producer_id: int) -> bool:
        succession = self._layouts.succession_for_markers(name)
        if succession is not None:
            return bool(succession.with_open_transaction(producer_id))
        return self._partitions.find_leader(*name).log.has_open_transaction(producer_id)

    def write(
        self,
        marker: EndTransactionMarker,
        names: tuple[TopicPartition, ...],
        *,
        on_written: Callable[[], None],
        is_wanted: Callable[[], bool],
        needs_newer_epoch: bool = False,
    ) -> None:
        """Write the marker to all partitions while that is wanted; call `on_written` when all markers are durable."""
        _Marking(
            self,
            marker,
            names,
            needs_newer_epoch=needs_newer_epoch,
            on_written=on_written,
            is_wanted=is_wanted,
        ).run_round()

    def begin_to_write(
        self,
        marker: EndTransactionMarker,
        name: TopicPartition,
        *,
        needs_newer_epoch: bool = False,
    ) -> "asyncio.Future[RequestError | None]":
        """Write the marker there, once. The future is done when it is durable, or when that can no longer be known.

        Its result is the error, or None. It is a result and not an exception, because the caller may be gone and
        asyncio complains about exceptions that are never retrieved.

        Raises:
            RequestError: the marker is not written.
        """
        done: asyncio.Future[RequestError | None] = asyncio.get_running_loop().create_future()
        fenced: RequestError | None = None
        for leading in self.find(name):
            if leading.is_leading:
                # The marker would not be committed now, and each retry of the sender would write another one.
                leading.role.leading().check_writable()
        try:
            ends = self.append(marker, name, needs_newer_epoch=needs_newer_epoch)
        except InvalidProducerEpoch as error:
            # This may be a duplicate. The sender takes this error to mean "written", so the first one must be durable.
            fenced = error
            ends = tuple((one, one.log.log_end) for one in self.find(name))
        waiting = _Waiting(done, fenced, count=len(ends))
        for partition, next_offset in ends:
            if not partition.waiters.wait_for_disk(next_offset, waiting):
                waiting.on_committed()
        return done

    def retry_later(self, marking: "_Marking", *, tries: int) -> None:
        """Schedule a retry, with a delay that grows with the number of attempts."""

        def run() -> None:
            del self._retries[timer]
            marking.run_round()

        delay_s = 0 if marking.sees_other_leaders else RETRY_S.delay(tries)
        timer = asyncio.get_running_loop().call_later(delay_s, run)
        self._retries[timer] = marking

    def on_leaders_changed(self) -> None:
        """Retry immediately the markers whose partitions have a new leader."""
        for timer, marking in tuple(self._retries.items()):
            if marking.sees_other_leaders:
                timer.cancel()
                del self._retries[timer]
                marking.run_round()

    def stop(self) -> None:
        """Cancel the retries. Markers that are not written yet are written after the next start."""
        for timer in self._retries:
            timer.cancel()
        self._retries.clear()
        if self.remote is not None:
            self.remote.stop()


class _Marking:
    """Writes the markers of one transaction: carries out what `PendingMarkers` decides."""

    def __init__(
        self,
        writer: MarkerWriter,
        marker: EndTransactionMarker,
        names: tuple[TopicPartition, ...],
        *,
        needs_newer_epoch: bool,
        on_written: Callable[[], None],
        is_wanted: Callable[[], bool],
    ) -> None:
        self._writer = writer
        self.marker = marker
        self.needs_newer_epoch = needs_newer_epoch
        self._pending = PendingMarkers(names)
        self._on_written = on_written
        self._is_wanted = is_wanted

    @property
    def is_wanted(self) -> bool:
        return not self._pending.is_fenced and self._is_wanted()

    @property
    def sees_other_leaders(self) -> bool:
        """True if a marker that can be retried would go to another broker than in its last attempt."""
        leader_of = self._leader_of
        return leader_of is not None and self._pending.has_other_leaders(leader_of)

    @property
    def _leader_of(self) -> LeaderOf | None:
        remote = self._writer.remote
        return None if remote is None else remote.leader_of

    def run_round(self) -> None:
        self._pending.on_retry()
        if not self.is_wanted or self._pending.is_done:
            return
        for name in self._pending.begin_round(self._leader_of):
            self._append(name)
        self._do(self._pending.end_round())

    def _append(self, name: TopicPartition) -> None:
        if self._writer.remote is not None:
            self._pending.on_attempt(name, self._writer.remote.leader_of(name))
        try:
            ends = self._writer.append(self.marker, name, needs_newer_epoch=self.needs_newer_epoch)
            self._wait_for_disk(ends, name)
        except UnknownTopicOrPartition:
            self._pending.on_written(name)
        except PolicyViolation as error:
            self._leave_to_promotion(name, error)
        except (InvalidProducerEpoch, TransactionCoordinatorFenced) as error:
            self._on_fenced_here(name, error)
        except NotLeader as error:
            if not self._send(name):
                self._log_retry("%s: the transaction marker cannot be written yet: %s", name, error)
        except RequestError as error:
            self._log_retry("%s: the transaction marker cannot be written yet: %s", name, error)

    def _wait_for_disk(self, ends: Ends, name: TopicPartition) -> None:
        # Set before the wait is requested: the marker may be on disk already.
        self._pending.on_in_flight(name)
        uncommitted = _UncommittedMarker(self, name)
        try:
            for partition, end in ends:
                uncommitted.count += partition.waiters.wait_for_disk(end, uncommitted)
        except RequestError:
            uncommitted.is_over = True
            self._pending.on_not_written(name)
            raise
        if not uncommitted.count:
            self._pending.on_written(name)

    def _on_fenced_here(self, name: TopicPartition, error: RequestError) -> None:
        """A newer epoch has written here. Then nothing of this transaction should be open in the partition."""
        try:
            if self._writer.has_open_transaction(name, self.marker.producer_id):
                # A marker from outside claimed to come from a newer coordinator. If this one counted as written, only
                # half of the transaction would have ended.
                self._log_retry(
                    "%s: the transaction marker is refused, and the transaction is open there: %s",
                    name,
                    error,
                )
                return
            self._log_not_needed(name, error)
            # The marker in the log may be our own first attempt, which is not on disk yet.
            ends = tuple((one, one.log.log_end) for one in self._writer.find(name))
            self._wait_for_disk(ends, name)
        except RequestError as refused:
            self._log_retry("%s: the transaction marker cannot be written yet: %s", name, refused)

    def _send(self, name: TopicPartition) -> bool:
        """Send the marker to the partition's leader. Return False if there is no leader now."""
        remote = self._writer.remote
        if remote is None:
            return False
        leader = self._pending.leader_tried(name)
        if leader is None or leader == remote.me:
            return False
        self._pending.on_in_flight(name)
        remote.send(leader, self, name)
        return True

    def on_answered(self, name: TopicPartition, error: RequestError | None) -> None:
        """The broker to which the marker was sent has written it, or has returned an error."""
        self._pending.on_not_written(name)
        if error is None:
            self._pending.on_written(name)
        elif isinstance(error, InvalidProducerEpoch):
            self._log_not_needed(name, error)
            self._pending.on_written(name)
        elif isinstance(error, TransactionCoordinatorFenced):
            logger.error(
                "%s: another coordinator has ended the transaction, this one stops: %s", name, error
            )
            self._pending.on_fenced()
        elif isinstance(error, UnknownTopicOrPartition) and self._is_gone(name):
            self._pending.on_written(name)
        elif isinstance(error, PolicyViolation):
            self._leave_to_promotion(name, error)
        else:
            self._log_retry("%s: the transaction marker is to be written again: %s", name, error)
        self._on_progress()

    def _leave_to_promotion(self, name: TopicPartition, error: RequestError) -> None:
        """The topic has become a mirror since. Its promotion ends the open transaction; the producer may continue."""
        logger.warning("%s: the transaction marker is not written: %s", name, error)
        self._pending.on_written(name)

    def _is_gone(self, name: TopicPartition) -> bool:
        # The other broker may not know the topic yet. Our image is at least as new as the transaction.
        return self._writer.remote is not None and not self._writer.remote.has_partition(name)

    def on_committed(self, name: TopicPartition) -> None:
        self._pending.on_written(name)
        self._on_progress()

    def on_failed(self, name: TopicPartition, error: RequestError) -> None:
        self._pending.on_not_written(name)
        self._log_retry("%s: the transaction marker is to be written again: %s", name, error)
        self._on_progress()

    def _log_retry(self, message: str, name: TopicPartition, error: RequestError) -> None:
        # Warn only once: a partition may be offline for days.
        level = logging.WARNING if self._pending.is_first_round else logging.DEBUG
        logger.log(level, message, name, error)

    def _log_not_needed(self, name: TopicPartition, error: RequestError) -> None:
        # In version 2 of transactions a duplicate marker gets this error.
        level = logging.DEBUG if self.needs_newer_epoch else logging.ERROR
        logger.log(level, "%s: the transaction marker is not needed: %s", name, error)

    def _on_progress(self) -> None:
        """After an event: report that all markers are written, or schedule a retry."""
        if self.is_wanted:
            self._do(self._pending.next_step())

    def _do(self, step: NextStep) -> None:
        if not self.is_wanted:
            return
        if step is NextStep.DONE:
            self._on_written()
        elif step is NextStep.RETRY:
            self._writer.retry_later(self, tries=self._pending.retries)


class _UncommittedMarker:
    __slots__ = ("_marking", "_name", "count", "is_over")

    def __init__(self, marking: _Marking, name: TopicPartition) -> None:
        self._marking = marking
        self._name = name
        # The partitions that still wait.
        self.count = 0
        self.is_over = False

    def on_committed(self) -> None:
        self.count -= 1
        if not self.count and not self.is_over:
            self._marking.on_committed(self._name)

    def on_failed(self, error: RequestError) -> None:
        if not self.is_over:
            self.is_over = True
            self._marking.on_failed(self._name, error)


class _Waiting:
    __slots__ = ("_count", "_done", "_fenced")

    def __init__(
        self,
        done: "asyncio.Future[RequestError | None]",
        fenced: RequestError | None,
        *,
        count: int,
    ) -> None:
        self._done = done
        self._count = count
        # The error to report once the marker is on disk.
        self._fenced = fenced

    def on_committed(self) -> None:
        self._count -= 1
        if not self._count and not self._done.done():
            self._done.set_result(self._fenced)

    def on_failed(self, error: RequestError) -> None:
        if not self._done.done():
            self._done.set_result(error)
