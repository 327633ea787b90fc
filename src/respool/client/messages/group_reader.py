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
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from respool.client.kafka.bootstrap import Bootstrap
from respool.client.messages import library, rewind
from respool.client.messages.arrivals import Arrivals
from respool.client.messages.errors import (
    ClientError,
    CommitFailed,
    ReceiveFailed,
)
from respool.client.messages.group_commits import GroupCommits, commit_failed
from respool.client.messages.library import KafkaException, log
from respool.client.messages.message import Message, Place
from respool.client.messages.message_buffer import MessageBuffer, first_offsets
from respool.client.messages.retry.group_retries import GroupRetries
from respool.client.messages.retry.retry_pause import RetryPause
from respool.client.messages.start_position import Positions, is_incremental
from respool.model.seek_target import AtOffset, SeekTarget

# Maximum wait inside librdkafka, so that Ctrl-C and `stop` are noticed.
_SLICE_SECONDS = 0.25
# How long a commit, and a revocation, waits until retries are acknowledged.
_COMMIT_SECONDS = 120.0
_REVOKE_SECONDS = 10.0


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
        make_retries: Callable[[Mapping[str, int]], GroupRetries] | None = None,
    ) -> None:
        """`make_retries` is called with the topics and their numbers of partitions."""
        self._delivery = delivery
        self._start = start
        self._commits_by_itself = commits_by_itself
        self._messages_at_once = messages_at_once
        self._is_incremental = is_incremental(settings)
        self._assigned: set[Place] = set()
        # True once the group has assigned partitions, possibly none to this member.
        self.has_joined = False
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
        self._buffer = MessageBuffer(self._progress)
        self._arrivals = Arrivals(self.kafka)
        self._positions = Positions(self.kafka, is_incremental=self._is_incremental)
        self.retries: GroupRetries | None = None
        self._pause = RetryPause(self.kafka)
        try:
            library.check_reachable(bootstrap)
            sources = {topic: self._partitions_of(topic, bootstrap) for topic in topics}
            if make_retries is not None:
                self.retries = make_retries(sources)
                self._partitions_of(self.retries.topic, bootstrap)
                self._progress.limited = self.retries.limited
                self._buffer.retries = self.retries
        except ClientError:
            self.kafka.close()
            raise
        self.kafka.subscribe(
            [*sources, *([] if self.retries is None else [self.retries.topic])],
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )

    @property
    def assigned(self) -> frozenset[Place]:
        return frozenset(self._assigned)

    def _partitions_of(self, topic: str, bootstrap: Bootstrap) -> int:
        return library.partitions_of(
            self.kafka, topic, bootstrap.servers, seconds=library.CONNECT_SECONDS
        )

    @property
    def can_hand_over(self) -> bool:
        """True if the next `take` needs no network."""
        return (
            bool(self._buffer)
            and not self._is_commit_due()
            and (self.retries is None or not self.retries.needs_wait)
        )

    @property
    def is_idle(self) -> bool:
        """True if messages could arrive, so that their absence means there are none."""
        return self.has_joined and not self._pause.is_on

    # -- messages

    def take(self, count: int, wait_s: float) -> list[Message]:
        """Return up to `count` messages, or none after the timeout. Marks the previous messages as done."""
        self.prepare(count, wait_s)
        return self.take_prepared(count)

    def prepare(self, count: int, wait_s: float) -> None:
        """Mark the previous messages as done; fetch messages, waiting up to `wait_s`."""
        self.is_abandoned = False
        self._commits.write_beginning_if_due()
        if self.retries is not None:
            self._serve_retries(self.retries)
        if self._commits_by_itself:
            self._progress.on_done()
            if self._is_commit_due():
                self._commits.write_done()
        count = max(count, self._messages_at_once)
        deadline = time.monotonic() + wait_s
        if self.retries is not None and not self._wait_in_a_storm(self.retries, deadline, count):
            return
        if not self._buffer:
            self._fill(deadline, count)

    def take_prepared(self, count: int) -> list[Message]:
        """Return buffered messages, without network requests."""
        return [] if self._pause.is_on else self._buffer.take(count)

    def _fill(self, deadline: float, count: int) -> None:
        while not self._buffer:
            left = deadline - time.monotonic()
            self._fetch(min(left, _SLICE_SECONDS), count)
            if self._is_over(left) and not self._buffer:
                self._raise_error()
                return

    def _fetch(self, wait_s: float, count: int) -> None:
        """Move what arrives into the buffer, and handle the events that arrive with it."""
        self._raise_error()
        came = self._arrivals.take(max(0.0, wait_s), count)
        # Messages of revoked partitions are dropped: another member reads them.
        batch = [one for one in came if one.place in self._assigned]
        self._write_beginning(batch)
        try:
            self._buffer.add(self._deliverable(batch))
        except ClientError:
            # None of them was returned, so they are read again after the error.
            self.go_back(batch)
            raise

    def _is_over(self, left_s: float) -> bool:
        return left_s <= 0 or self.stopping.is_set() or self.is_abandoned

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
        self._buffer.raise_stuck()

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
                self._positions.go_to(first_offsets(batch), assigned=self._assigned)
            return []
        return batch

    # -- retries

    def _serve_retries(self, retries: GroupRetries) -> None:
        """
        Raises:
            RetryRefused: failed messages could not be written, and are read again.
        """
        retries.serve()
        refused = retries.take_refused()
        if refused is not None:
            firsts, error = refused
            self._go_back_to(firsts)
            raise error

    def _wait_in_a_storm(self, retries: GroupRetries, deadline: float, count: int) -> bool:
        """Return True once messages may be returned; False at the deadline, if still too many of them fail."""
        while (wait_s := retries.wait_s()) > 0:
            # Paused partitions deliver nothing, but the group hears from this member, and errors are noticed.
            self._pause.begin(self._assigned)
            left = deadline - time.monotonic()
            self._fetch(min(wait_s, left, _SLICE_SECONDS), count)
            if self._is_over(left):
                return False
        self._pause.end(self._assigned)
        return True

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
        if self.retries is not None:
            self.retries.wait(_COMMIT_SECONDS)
            self._serve_retries(self.retries)
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
        if self.retries is not None:
            # What is not acknowledged by then is read again by the next member.
            self.retries.wait(_REVOKE_SECONDS)
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
            firsts = self._buffer.firsts()
            return {place: firsts[place] for place in places if place in firsts}
        return self._progress.to_commit(places)

    def _forget(self, places: set[Place]) -> None:
        self._assigned -= places
        self._arrivals.forget(places)
        self._buffer.release(places)
        self._progress.forget(places)
        if self.retries is not None:
            self.retries.forget(places)
        self._buffer.drop(places)

    # -- seeking

    def _targets(self, request: rewind.RewindRequest) -> Mapping[Place, SeekTarget]:
        # What waits for its next attempt is not rewound with the topics it comes from.
        return request.targets(self._assigned, besides=self._retry_topics)

    @property
    def _retry_topics(self) -> frozenset[str]:
        return frozenset() if self.retries is None else frozenset({self.retries.topic})

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
            targets = rewind.resolve(self.kafka, self._targets(request), missing=request.missing)
        except KafkaException as error:
            raise ReceiveFailed(
                f"the broker does not say where to rewind to: {library.reason(error)}"
            ) from error
        self._move(targets)

    def go_back(self, messages: Sequence[Message]) -> None:
        """Read these messages again: their transaction was aborted, and no offsets were committed."""
        self._go_back_to(first_offsets(messages))

    def _go_back_to(self, firsts: Mapping[Place, int]) -> None:
        here = {place: offset for place, offset in firsts.items() if place in self._assigned}
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
        if self.retries is not None:
            self.retries.forget(targets)
        self._drop(targets)
        self._positions.go_to(targets, assigned=self._assigned)
        self._buffer.release(targets)

    def _drop(self, places: Iterable[Place]) -> None:
        gone = set(places)
        self._progress.forget(gone)
        self._buffer.drop(gone)

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
                    # A retry waits to be handled, also in a group that begins with the latest messages.
                    is_early = self._start == "earliest" or place[0] in self._retry_topics
                    new[place] = low if is_early else high
                elif place in told and low <= offset <= high:
                    # The report predates the latest seek, so it is outdated.
                    again[place] = offset
                elif place in told:
                    self._buffer.on_stuck(place, rewind.deleted_unread(place, offset, low, high))
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
        moved = set(self._targets(request))
        return [one for one in batch if one.place not in moved]

    # -- the end

    def close(self, *, is_done: bool) -> None:
        """Commit everything that is done, and leave the group.

        Raises:
            CommitFailed: the commit failed.
            RetryRefused: failed messages could not be written; the next member reads them again.
        """
        if is_done and self._commits_by_itself:
            self._progress.on_done()
        if self.retries is not None:
            self.retries.wait(_COMMIT_SECONDS)
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
            refused = None if self.retries is None else self.retries.take_refused()
            with suppress(KafkaException):
                self.kafka.close()
        if refused is not None:
            raise refused[1]


def _places(partitions: Iterable[Any]) -> set[Place]:
    return {(one.topic, one.partition) for one in partitions}
