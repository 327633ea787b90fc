"""Transactions' ends on their way into the partitions they wrote to.

The decision to commit or abort is committed before anything comes here, and can never change. So what cannot be written
now is tried again until it can: a partition may be offline, a disk full, a coordinator of groups still loading. A
partition that is gone has nothing to end.

An end counts as written when it is on the disk, also in topics that promise less. The coordinator forgets the
transaction then, and a marker that a power cut took after that would be written by nobody: what was aborted would
become part of the producer's next transaction there.
"""

import asyncio
import logging
from collections.abc import Callable

from respool.broker.partition import Partition
from respool.broker.partitions import Partitions
from respool.broker.shards import Shards
from respool.model.errors import (
    InvalidProducerEpoch,
    RequestError,
    TransactionCoordinatorFenced,
    UnknownTopicOrPartition,
)
from respool.model.ids import Offset, TopicPartition
from respool.model.internal_topics import TRANSACTION_STATE
from respool.ports.clock import Clock
from respool.records.markers import EndTransactionMarker

logger = logging.getLogger(__name__)

RETRY_DELAY_S = 0.5
RETRY_DELAY_S_MAX = 10.0


class MarkerWriter:
    def __init__(self, *, partitions: Partitions, offsets: Shards, clock: Clock) -> None:
        """`offsets` are the coordinators of groups: they must hear of the end of what they wrote in a transaction."""
        self._partitions = partitions
        self._offsets = offsets
        self._clock = clock
        self._retries: set[asyncio.TimerHandle] = set()

    def append(
        self, marker: EndTransactionMarker, name: TopicPartition
    ) -> tuple[Partition, Offset]:
        """Write the marker; it is there for good when all before the offset returned is on the disk.

        Raises:
            RequestError: it is not written.
        """
        if name.topic == TRANSACTION_STATE:
            # It is read as the coordinators wrote it, and they write in no transaction.
            raise UnknownTopicOrPartition(f"no transaction can have written to {name.topic}")
        partition = self._partitions.find(*name)
        if name.topic == self._offsets.topic:
            return partition, self._offsets.at(name.partition).end_transaction(marker)
        appended = partition.append_marker(marker, now_ms=self._clock.now_ms())
        return partition, Offset(appended.last_offset + 1)

    def is_open(self, marker: EndTransactionMarker, name: TopicPartition) -> bool:
        """Whether the producer has a transaction open there."""
        return self._partitions.find(*name).has_open_transaction(marker.producer_id)

    def write(
        self,
        marker: EndTransactionMarker,
        names: tuple[TopicPartition, ...],
        *,
        on_written: Callable[[], None],
        is_wanted: Callable[[], bool],
    ) -> None:
        """Write the marker to all of them, for as long as it is wanted; call `on_written` when all is on the disk."""
        _Marking(self, marker, names, on_written=on_written, is_wanted=is_wanted).go_on()

    async def write_once(self, marker: EndTransactionMarker, name: TopicPartition) -> None:
        """Write the marker there and wait until it is on the disk.

        Raises:
            RequestError: it is not.
        """
        partition, next_offset = self.append(marker, name)
        committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if partition.wait_for_disk(next_offset, _Waiting(committed)):
            await committed

    def retry_later(self, work: Callable[[], None], *, tries: int) -> None:
        """Do it again, the later the more often it was tried."""

        def run() -> None:
            self._retries.discard(timer)
            work()

        timer = asyncio.get_running_loop().call_later(retry_delay_s(tries), run)
        self._retries.add(timer)

    def stop(self) -> None:
        """What is not written yet is written after the next start."""
        for timer in self._retries:
            timer.cancel()
        self._retries.clear()


def retry_delay_s(tries: int) -> float:
    """Twice as long each time, to an end."""
    return min(RETRY_DELAY_S * (1 << min(tries - 1, 10)), RETRY_DELAY_S_MAX)


class _Marking:
    """One transaction's end: in which partitions it is not on the disk yet."""

    def __init__(
        self,
        writer: MarkerWriter,
        marker: EndTransactionMarker,
        names: tuple[TopicPartition, ...],
        *,
        on_written: Callable[[], None],
        is_wanted: Callable[[], bool],
    ) -> None:
        self._writer = writer
        self._marker = marker
        self._left = set(names)
        self._on_written = on_written
        self._is_wanted = is_wanted
        self._tries = 0
        # Those appended and not yet on the disk, and one for the turn that appends.
        self._outstanding = 0

    def go_on(self) -> None:
        if not self._is_wanted():
            return
        self._outstanding = 1
        self._tries += 1
        for name in sorted(self._left):
            self._append(name)
        self._on_one_done()

    def _append(self, name: TopicPartition) -> None:
        try:
            partition, next_offset = self._writer.append(self._marker, name)
            listener = _Outstanding(self, name)
            if partition.wait_for_disk(next_offset, listener):
                self._outstanding += 1
            else:
                self._left.discard(name)
        except UnknownTopicOrPartition:
            self._left.discard(name)
        except (InvalidProducerEpoch, TransactionCoordinatorFenced) as error:
            self._on_fenced(name, error)
        except RequestError as error:
            self._tell("%s: a transaction's end cannot be written yet: %s", name, error)

    def _on_fenced(self, name: TopicPartition, error: RequestError) -> None:
        """Somebody who is newer has been there. Then nothing of this transaction should be open there any more."""
        if self._writer.is_open(self._marker, name):
            # An end from outside claimed to be a newer coordinator's. Called written, this would be half a transaction.
            self._tell("%s: a transaction's end is refused, and it is open there: %s", name, error)
            return
        logger.error("%s: a transaction's end is not needed: %s", name, error)
        self._left.discard(name)

    def on_committed(self, name: TopicPartition) -> None:
        self._left.discard(name)
        self._on_one_done()

    def on_failed(self, name: TopicPartition, error: RequestError) -> None:
        self._tell("%s: a transaction's end is to be written again: %s", name, error)
        self._on_one_done()

    def _tell(self, message: str, name: TopicPartition, error: RequestError) -> None:
        # Once; a partition may be offline for days.
        level = logging.WARNING if self._tries == 1 else logging.DEBUG
        logger.log(level, message, name, error)

    def _on_one_done(self) -> None:
        self._outstanding -= 1
        if self._outstanding:
            return
        if self._left:
            self._writer.retry_later(self.go_on, tries=self._tries)
        elif self._is_wanted():
            self._on_written()


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
    __slots__ = ("_committed",)

    def __init__(self, committed: "asyncio.Future[None]") -> None:
        self._committed = committed

    def on_committed(self) -> None:
        if not self._committed.done():
            self._committed.set_result(None)

    def on_failed(self, error: RequestError) -> None:
        if not self._committed.done():
            self._committed.set_exception(error)
