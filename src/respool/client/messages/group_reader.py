"""A group member: fetches messages from librdkafka, commits as the guarantee requires, and seeks.

Used by both the blocking and the asyncio consumer. It is not thread-safe: its owner calls it from one thread at a time.
When offsets are committed:

    at-most-once    in `take`, before messages are returned; none is returned whose commit was not acknowledged
    at-least-once   in `take`, when more messages are requested, at most every `commit_every_ms`; on revocation; on
                    close; and a new group's start offsets asynchronously, once reading has begun
    exactly-once    never here: the producer's transaction commits them
"""

import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from respool.client.kafka.bootstrap import Bootstrap
from respool.client.messages import library, rewind
from respool.client.messages.arrivals import Arrivals
from respool.client.messages.errors import (
    ClientError,
    CommitFailed,
    OutsideRetention,
    ReceiveFailed,
)
from respool.client.messages.group_commits import GroupCommits, commit_failed
from respool.client.messages.library import KafkaException, log
from respool.client.messages.message import Message, Place
from respool.client.messages.start_position import Positions
from respool.model.seek_target import AtOffset

# Maximum wait inside librdkafka, so that Ctrl-C and `stop` are noticed.
_SLICE_SECONDS = 0.25


class GroupReader:
    def __init__(
        self,
        topics: Sequence[str],
        settings: Mapping[str, object],
        *,
        bootstrap: Bootstrap,
        delivery: str,
        start: str,
        commits_by_itself: bool,
        commit_every_ms: int,
        messages_at_once: int,
    ) -> None:
        self._delivery = delivery
        self._start = start
        self._commits_by_itself = commits_by_itself
        self._messages_at_once = messages_at_once
        self._is_incremental = _is_incremental(settings)
        # Fetched from librdkafka and not yet returned.
        self._buffer: deque[Message] = deque()
        self._assigned: set[Place] = set()
        # True once the group has assigned partitions, possibly none to this member.
        self.has_joined = False
        # Partitions whose messages were deleted before they were read; every `take` raises until a rewind.
        self._lost: dict[Place, ClientError] = {}
        # A rewind for the partitions assigned next.
        self._pending: rewind.RewindRequest | None = None
        self.stopping = threading.Event()
        # Set to cancel the wait of `prepare`.
        self.is_abandoned = False
        self.kafka: Any = library.make(
            library.KafkaConsumer,
            {**settings, "on_commit": self._on_commit, "enable.partition.eof": True},
        )
        self._commits = GroupCommits(self.kafka, every_ms=commit_every_ms)
        self._progress = self._commits.progress
        self._arrivals = Arrivals(self.kafka)
        self._positions = Positions(self.kafka, is_incremental=self._is_incremental)
        try:
            library.check_reachable(bootstrap)
            for topic in topics:
                library.partitions_of(
                    self.kafka, topic, bootstrap.servers, seconds=library.CONNECT_SECONDS
                )
        except ClientError:
            self.kafka.close()
            raise
        self.kafka.subscribe(
            list(topics),
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )

    @property
    def assigned(self) -> frozenset[Place]:
        return frozenset(self._assigned)

    @property
    def can_hand_over(self) -> bool:
        """True if the next `take` needs no network."""
        return bool(self._buffer) and not self._is_commit_due()

    # -- messages

    def take(self, count: int, wait_s: float) -> list[Message]:
        """Return up to `count` messages, or none after the timeout. Marks the previous messages as done."""
        self.prepare(count, wait_s)
        return self.take_prepared(count)

    def prepare(self, count: int, wait_s: float) -> None:
        """Mark the previous messages as done; fetch messages, waiting up to `wait_s`."""
        self.is_abandoned = False
        self._commits.write_beginning_if_due()
        if self._commits_by_itself:
            self._progress.on_done()
            if self._is_commit_due():
                self._commits.write_done()
        if not self._buffer:
            self._fill(wait_s, max(count, self._messages_at_once))

    def take_prepared(self, count: int) -> list[Message]:
        """Return buffered messages, without network requests."""
        taken = [self._buffer.popleft() for _ in range(min(count, len(self._buffer)))]
        for message in taken:
            self._progress.on_handed(message.place, message.offset)
        return taken

    def _fill(self, wait_s: float, count: int) -> None:
        deadline = time.monotonic() + wait_s
        while not self._buffer:
            self._raise_error()
            left = deadline - time.monotonic()
            came = self._arrivals.take(max(0.0, min(left, _SLICE_SECONDS)), count)
            # Messages of revoked partitions are dropped: another member reads them.
            batch = [one for one in came if one.place in self._assigned]
            self._write_beginning(batch)
            try:
                self._buffer.extend(self._deliverable(batch))
            except ClientError:
                # None of them was returned, so they are read again after the error.
                self.go_back(batch)
                raise
            is_over = left <= 0 or self.stopping.is_set() or self.is_abandoned
            if is_over and not self._buffer:
                self._raise_error()
                return

    def _write_beginning(self, batch: list[Message]) -> None:
        """Commit a new group's start offsets as soon as that does not delay reading."""
        if waiting := self._commits.unstarted:
            reading = {one.place for one in batch}
            started = {one for one in waiting if one in reading or self._arrivals.is_read(one)}
            self._commits.on_started(started | (waiting - self._assigned))
        self._commits.write_beginning_if_due()

    def _deliverable(self, batch: list[Message]) -> list[Message]:
        """Return the deliverable messages, after handling the events that arrived with them."""
        if self._arrivals.has_unplaced:
            self._place()
        if self._pending is not None and self._assigned:
            batch = self._apply_pending(batch)
        if batch and self._delivery == "at-most-once":
            batch = self._committed_first(batch)
        return batch

    def _raise_error(self) -> None:
        self._arrivals.raise_error()
        for error in self._lost.values():
            raise error

    def _committed_first(self, batch: list[Message]) -> list[Message]:
        """At most once: messages whose commit fails are not returned, but read again."""
        try:
            self._commits.write({one.place: one.offset + 1 for one in batch})
        except KafkaException as error:
            code = error.args[0].code()
            if code not in library.PASSING | library.REBALANCED:
                raise commit_failed(error) from error
            log.info("nothing is handed over before it is committed: %s", library.reason(error))
            # With eager rebalancing all partitions are about to be revoked.
            if code not in library.REBALANCED or self._is_incremental:
                self._positions.go_to(_firsts(batch), assigned=self._assigned)
            return []
        return batch

    # -- commits

    def commit(self, message: Message | None) -> None:
        """Commit everything done so far, or this message's partition up to the message.

        Raises:
            CommitFailed, Fenced.
        """
        if message is None:
            self._progress.on_done()
        elif message.place in self._assigned:
            self._progress.on_done_up_to(message.place, message.offset)
        else:
            raise CommitFailed(
                f"{message.topic}/{message.partition} is no longer this consumer's: the group has given it to another,"
                " where this message is redelivered"
            )
        try:
            self._commits.write(self._progress.to_commit())
        except KafkaException as error:
            raise commit_failed(error) from error

    def _is_commit_due(self) -> bool:
        return self._commits_by_itself and self._commits.is_due

    def _on_commit(self, error: Any, partitions: list[Any]) -> None:
        self._commits.on_told(error, partitions)

    # -- assignment and revocation

    def _on_assign(self, _: Any, partitions: list[Any]) -> None:
        self._assigned |= _places(partitions)
        self.has_joined = True

    def _on_revoke(self, _: Any, partitions: list[Any]) -> None:
        places = _places(partitions)
        leaving = self._to_commit_when_leaving(places)
        try:
            self._commits.write(leaving)
        except KafkaException as error:
            log.info("partitions are revoked without a commit: %s", library.reason(error))
        self._forget(places)

    def _on_lost(self, _: Any, partitions: list[Any]) -> None:
        # Another member may already read them.
        self._forget(_places(partitions))

    def _to_commit_when_leaving(self, places: Iterable[Place]) -> dict[Place, int]:
        if self._delivery == "at-most-once":
            # Buffered messages are already committed but unread: go back, so that the next member does not skip them.
            firsts = _firsts(self._buffer)
            return {place: firsts[place] for place in places if place in firsts}
        return self._progress.to_commit(places)

    def _forget(self, places: set[Place]) -> None:
        self._assigned -= places
        self._arrivals.forget(places)
        for place in places:
            self._lost.pop(place, None)
        self._progress.forget(places)
        self._buffer = deque(one for one in self._buffer if one.place not in places)

    # -- seeking

    def rewind(self, request: rewind.RewindRequest) -> None:
        """Seek the assigned partitions or, if none are assigned yet, the first assignment.

        Raises:
            BadArgument, OutsideRetention, OffsetBeyondEnd: no position was changed.
            ReceiveFailed: the broker did not answer; no position was changed.
            CommitFailed: this consumer has seeked, but its offsets were not committed.
        """
        if not self._assigned:
            self._pending = request
            return
        try:
            targets = rewind.resolve(
                self.kafka, request.targets(self._assigned), missing=request.missing
            )
        except KafkaException as error:
            raise ReceiveFailed(
                f"the broker does not say where to rewind to: {library.reason(error)}"
            ) from error
        self._move(targets)

    def go_back(self, messages: Sequence[Message]) -> None:
        """Read these messages again: their transaction was aborted, and no offsets were committed."""
        here = {
            place: offset for place, offset in _firsts(messages).items() if place in self._assigned
        }
        self._drop(here)
        self._positions.go_to(here, assigned=self._assigned)

    def _move(self, targets: Mapping[Place, int]) -> None:
        """Seek and commit, so that the next member continues from there."""
        self._go_to(targets)
        try:
            self._commits.write(targets)
        except KafkaException as error:
            if error.args[0].code() not in library.REBALANCED:
                raise commit_failed(error) from error
            # A rebalance is in progress; partitions that are assigned again are moved afterwards.
            self._pending = rewind.RewindRequest(
                places={place: AtOffset(offset) for place, offset in targets.items()},
                must_be_assigned=False,
            )

    def _go_to(self, targets: Mapping[Place, int]) -> None:
        self._drop(targets)
        self._positions.go_to(targets, assigned=self._assigned)
        for place in targets:
            self._lost.pop(place, None)

    def _drop(self, places: Iterable[Place]) -> None:
        gone = set(places)
        self._progress.forget(gone)
        self._buffer = deque(one for one in self._buffer if one.place not in gone)

    def _place(self) -> None:
        """Set a new group's start offsets, or report that messages were deleted before they were read."""
        told = self._arrivals.take_unplaced() & self._assigned
        if not told:
            return
        new: dict[Place, int] = {}
        again: dict[Place, int] = {}
        try:
            wanted = self._positions.wanted(self._assigned)
            for place, (low, high) in rewind.bounds(self.kafka, wanted).items():
                offset = wanted[place]
                if offset is None:
                    # All partitions at once, including those that librdkafka has not reported yet.
                    new[place] = low if self._start == "earliest" else high
                elif place in told and low <= offset <= high:
                    # The report predates the latest seek, so it is outdated.
                    again[place] = offset
                elif place in told:
                    self._lost[place] = _deleted(place, offset, low, high)
        except KafkaException as error:
            # No broker answers: the next `take` retries.
            log.info("where to begin is asked again later: %s", library.reason(error))
            self._arrivals.put_back(told)
            return
        self._positions.go_to(again, assigned=self._assigned)
        if new and self._delivery == "at-least-once":
            self._go_to(new)
            self._commits.begin(new)
        elif new:
            # Commit only the new ones: the offsets of other partitions must not change.
            self._move(new)

    def _apply_pending(self, batch: list[Message]) -> list[Message]:
        request, self._pending = self._pending, None
        assert request is not None
        self.rewind(request)
        # None of them has been returned; they are read again from the new offset.
        moved = set(request.targets(self._assigned))
        return [one for one in batch if one.place not in moved]

    # -- the end

    def close(self, *, is_done: bool) -> None:
        """Commit everything that is done, and leave the group.

        Raises:
            CommitFailed: the commit failed.
        """
        if is_done and self._commits_by_itself:
            self._progress.on_done()
        try:
            self._commits.write(self._to_commit_when_leaving(self._assigned))
        except KafkaException as error:
            if error.args[0].code() in library.REBALANCED:
                log.info("closed without a commit: %s", library.reason(error))
            else:
                raise commit_failed(error) from error
        finally:
            # Leaving calls the revocation callback, which then has nothing to commit.
            self._drop(self._assigned)
            with suppress(KafkaException):
                self.kafka.close()


def _is_incremental(settings: Mapping[str, object]) -> bool:
    return "cooperative" in str(settings.get("partition.assignment.strategy", "")) or (
        settings.get("group.protocol") == "consumer"
    )


def _places(partitions: Iterable[Any]) -> set[Place]:
    return {(one.topic, one.partition) for one in partitions}


def _firsts(messages: Iterable[Message]) -> dict[Place, int]:
    firsts: dict[Place, int] = {}
    for one in messages:
        firsts.setdefault(one.place, one.offset)
    return firsts


def _deleted(place: Place, offset: int, low: int, high: int) -> OutsideRetention:
    return OutsideRetention(
        f"messages were deleted before they were read. The next to read is {offset}; there is {low} up to {high}. To"
        " continue with the oldest message: consumer.rewind('earliest')",
        topic=place[0],
        partition=place[1],
        offset=offset,
        first_offset=low,
    )
