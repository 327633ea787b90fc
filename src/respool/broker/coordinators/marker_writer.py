"""Transactions' ends on their way into the partitions they wrote to.

The decision to commit or abort is committed before anything comes here, and can never change. So what cannot be written
now is tried again until it can: a partition may be offline, a disk full, a coordinator of groups still loading. A
partition that is gone has nothing to end. Partitions that other brokers lead get it from those (`remote_markers.py`).

An end counts as written when it is on the disk, also in topics that promise less. The coordinator forgets the
transaction then, and a marker that a power cut took after that would be written by nobody: what was aborted would
become part of the producer's next transaction there.
"""

import asyncio
import logging
from collections.abc import Callable

from respool.broker.coordinators.remote_markers import RemoteMarkers
from respool.broker.coordinators.runtimes import CoordinatorRuntimes
from respool.broker.partitions.partition import Partition
from respool.broker.partitions.registry import Partitions
from respool.model.errors import (
    InvalidProducerEpoch,
    NotLeader,
    PolicyViolation,
    RequestError,
    TransactionCoordinatorFenced,
    UnknownTopicOrPartition,
)
from respool.model.ids import BrokerId, Offset, TopicPartition
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
        remote: RemoteMarkers | None = None,
    ) -> None:
        """`offsets` are the coordinators of groups: they must hear of the end of what they wrote in a transaction.

        Without `remote` this broker is alone.
        """
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
    ) -> tuple[Partition, Offset]:
        """Write the marker; it is there for good when all before the offset returned is on the disk.

        Raises:
            NotLeader: another broker leads the partition.
            RequestError: it is not written.
        """
        if name.topic == TRANSACTION_STATE:
            # It is read as the coordinators wrote it, and they write in no transaction.
            raise UnknownTopicOrPartition(f"no transaction can have written to {name.topic}")
        partition = self._partitions.find_leader(*name)
        if name.topic == self._offsets.topic:
            runtime = self._offsets.at(name.partition)
            return partition, runtime.end_transaction(marker, needs_newer_epoch=needs_newer_epoch)
        appended = partition.append_marker(
            marker, now_ms=self._clock.now_ms(), needs_newer_epoch=needs_newer_epoch
        )
        return partition, Offset(appended.last_offset + 1)

    def find(self, name: TopicPartition) -> Partition:
        return self._partitions.find_leader(*name)

    def write(
        self,
        marker: EndTransactionMarker,
        names: tuple[TopicPartition, ...],
        *,
        on_written: Callable[[], None],
        is_wanted: Callable[[], bool],
        needs_newer_epoch: bool = False,
    ) -> None:
        """Write the marker to all of them, for as long as it is wanted; call `on_written` when all is on the disk."""
        _Marking(
            self,
            marker,
            names,
            needs_newer_epoch=needs_newer_epoch,
            on_written=on_written,
            is_wanted=is_wanted,
        ).go_on()

    def begin_to_write(
        self,
        marker: EndTransactionMarker,
        name: TopicPartition,
        *,
        needs_newer_epoch: bool = False,
    ) -> "asyncio.Future[RequestError | None]":
        """Write the marker there, once; done when it is on the disk, or when nobody knows whether it will be.

        Then it has the error, if there is one: as a result, for those who asked may be gone, and asyncio complains of
        exceptions that nobody looks at.

        Raises:
            RequestError: it is not written.
        """
        done: asyncio.Future[RequestError | None] = asyncio.get_running_loop().create_future()
        fenced: RequestError | None = None
        leading = self.find(name)
        if leading.is_leading:
            # It would not be committed now, and whoever sends it again would write another.
            leading.role.leading().check_writable()
        try:
            partition, next_offset = self.append(marker, name, needs_newer_epoch=needs_newer_epoch)
        except InvalidProducerEpoch as error:
            # This may be the second time that it comes, and whoever hears so takes it for written. Then it must be.
            partition, fenced = self.find(name), error
            next_offset = partition.log.log_end
        waiting = _Waiting(done, fenced)
        if not partition.wait_for_disk(next_offset, waiting):
            waiting.on_committed()
        return done

    def retry_later(self, marking: "_Marking", *, tries: int) -> None:
        """Go on with it, the later the more often it was tried."""

        def run() -> None:
            del self._retries[timer]
            marking.go_on()

        delay_s = 0 if marking.sees_other_leaders else RETRY_S.delay(tries)
        timer = asyncio.get_running_loop().call_later(delay_s, run)
        self._retries[timer] = marking

    def on_leaders_changed(self) -> None:
        """What waits for a partition that has another leader now is tried at once."""
        for timer, marking in tuple(self._retries.items()):
            if marking.sees_other_leaders:
                timer.cancel()
                del self._retries[timer]
                marking.go_on()

    def stop(self) -> None:
        """What is not written yet is written after the next start."""
        for timer in self._retries:
            timer.cancel()
        self._retries.clear()
        if self.remote is not None:
            self.remote.stop()


class _Marking:
    """One transaction's end: in which partitions it is not on the disk yet."""

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
        self._left = set(names)
        # Of those: appended and not yet on the disk, or on its way to another broker.
        self._under_way: set[TopicPartition] = set()
        # Who led each of them when it was tried last; only in a cluster.
        self._tried: dict[TopicPartition, BrokerId | None] = {}
        self._on_written = on_written
        self._is_wanted = is_wanted
        # Another coordinator has taken over, though we have not heard of it.
        self._is_fenced = False
        self._is_appending = False
        self._is_retrying = False
        self._tries = 0
        # Of those: since a partition has had another leader. Each try after that waits longer than the one before.
        self._tries_at_leaders = 0

    @property
    def is_wanted(self) -> bool:
        return not self._is_fenced and self._is_wanted()

    @property
    def sees_other_leaders(self) -> bool:
        """Whether something that could be tried again would go to another broker than the last time."""
        remote = self._writer.remote
        return remote is not None and any(
            name in self._left
            # What is on its way is not tried again, so it would be seen again and again.
            and name not in self._under_way
            and remote.leader_of(name) != leader
            for name, leader in self._tried.items()
        )

    def go_on(self) -> None:
        self._is_retrying = False
        if not self.is_wanted:
            return
        if self.sees_other_leaders:
            # A broker that was elected, this one too, leads only when its epoch is on its disk. So the first try may
            # come too early, and must not wait for the next as long as those to a leader that was away for minutes.
            self._tries_at_leaders = 0
        self._tries += 1
        self._tries_at_leaders += 1
        self._is_appending = True
        for name in sorted(self._left - self._under_way):
            self._append(name)
        self._is_appending = False
        self._look_on()

    def _append(self, name: TopicPartition) -> None:
        if self._writer.remote is not None:
            self._tried[name] = self._writer.remote.leader_of(name)
        try:
            partition, next_offset = self._writer.append(
                self.marker, name, needs_newer_epoch=self.needs_newer_epoch
            )
            self._wait_for_disk(partition, next_offset, name)
        except UnknownTopicOrPartition:
            self._left.discard(name)
        except PolicyViolation as error:
            self._leave_to_promotion(name, error)
        except (InvalidProducerEpoch, TransactionCoordinatorFenced) as error:
            self._on_fenced_here(name, error)
        except NotLeader as error:
            if not self._send(name):
                self._tell("%s: a transaction's end cannot be written yet: %s", name, error)
        except RequestError as error:
            self._tell("%s: a transaction's end cannot be written yet: %s", name, error)

    def _wait_for_disk(self, partition: Partition, end: Offset, name: TopicPartition) -> None:
        # Before it is asked for: it may be there at once.
        self._under_way.add(name)
        try:
            is_waiting = partition.wait_for_disk(end, _Outstanding(self, name))
        except RequestError:
            self._under_way.discard(name)
            raise
        if not is_waiting:
            self._under_way.discard(name)
            self._left.discard(name)

    def _on_fenced_here(self, name: TopicPartition, error: RequestError) -> None:
        """Somebody who is newer has been there. Then nothing of this transaction should be open there any more."""
        try:
            partition = self._writer.find(name)
            if partition.has_open_transaction(self.marker.producer_id):
                # An end from outside claimed to be a newer coordinator's. Called written, this would be half a
                # transaction.
                self._tell(
                    "%s: a transaction's end is refused, and it is open there: %s", name, error
                )
                return
            self._tell_not_needed(name, error)
            # What was there before us may be our own first try, that is not on the disk yet.
            self._wait_for_disk(partition, partition.log.log_end, name)
        except RequestError as refused:
            self._tell("%s: a transaction's end cannot be written yet: %s", name, refused)

    def _send(self, name: TopicPartition) -> bool:
        """Have the broker write it that leads the partition; False where nobody does now."""
        remote = self._writer.remote
        if remote is None:
            return False
        leader = self._tried[name]
        if leader is None or leader == remote.me:
            return False
        self._under_way.add(name)
        remote.send(leader, self, name)
        return True

    def on_answered(self, name: TopicPartition, error: RequestError | None) -> None:
        """The broker that it was sent to has written it, or says why not."""
        self._under_way.discard(name)
        if error is None:
            self._left.discard(name)
        elif isinstance(error, InvalidProducerEpoch):
            self._tell_not_needed(name, error)
            self._left.discard(name)
        elif isinstance(error, TransactionCoordinatorFenced):
            logger.error(
                "%s: another coordinator has ended a transaction, we stop: %s", name, error
            )
            self._is_fenced = True
        elif isinstance(error, UnknownTopicOrPartition) and self._is_gone(name):
            self._left.discard(name)
        elif isinstance(error, PolicyViolation):
            self._leave_to_promotion(name, error)
        else:
            self._tell("%s: a transaction's end is to be written again: %s", name, error)
        self._look_on()

    def _leave_to_promotion(self, name: TopicPartition, error: RequestError) -> None:
        """The topic was made a mirror meanwhile. Whoever promotes it ends what is open there; the producer goes on."""
        logger.warning("%s: a transaction's end is not written: %s", name, error)
        self._left.discard(name)

    def _is_gone(self, name: TopicPartition) -> bool:
        # The other broker may not have heard of the topic yet. What we know is at least what the transaction knew.
        return self._writer.remote is not None and not self._writer.remote.has_partition(name)

    def on_committed(self, name: TopicPartition) -> None:
        self._under_way.discard(name)
        self._left.discard(name)
        self._look_on()

    def on_failed(self, name: TopicPartition, error: RequestError) -> None:
        self._under_way.discard(name)
        self._tell("%s: a transaction's end is to be written again: %s", name, error)
        self._look_on()

    def _tell(self, message: str, name: TopicPartition, error: RequestError) -> None:
        # Once; a partition may be offline for days.
        level = logging.WARNING if self._tries == 1 else logging.DEBUG
        logger.log(level, message, name, error)

    def _tell_not_needed(self, name: TopicPartition, error: RequestError) -> None:
        # In version 2 that is what a marker hears that comes for the second time.
        level = logging.DEBUG if self.needs_newer_epoch else logging.ERROR
        logger.log(level, "%s: a transaction's end is not needed: %s", name, error)

    def _look_on(self) -> None:
        """Something is done: is all, or is there something to try again?"""
        if self._is_appending or not self.is_wanted:
            return
        if not self._left:
            self._on_written()
        elif len(self._under_way) < len(self._left) and not self._is_retrying:
            self._is_retrying = True
            self._writer.retry_later(self, tries=self._tries_at_leaders)


class _Outstanding:
    __slots__ = ("_marking", "_name")

    def __init__(self, marking: _Marking, name: TopicPartition) -> None:
        self._marking = marking
        self._name = name

    def on_committed(self) -> None:
        self._marking.on_committed(self._name)

    def on_failed(self, error: RequestError) -> None:
        self._marking.on_failed(self._name, error)


class _Waiting:
    __slots__ = ("_done", "_fenced")

    def __init__(
        self, done: "asyncio.Future[RequestError | None]", fenced: RequestError | None
    ) -> None:
        self._done = done
        # What is to be said when it is on the disk.
        self._fenced = fenced

    def on_committed(self) -> None:
        if not self._done.done():
            self._done.set_result(self._fenced)

    def on_failed(self, error: RequestError) -> None:
        if not self._done.done():
            self._done.set_result(error)
