"""The commits of a group member: its progress, and the start offsets of a new group.

Offsets whose commit failed are committed with the next one.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from respool.client.messages import library
from respool.client.messages.errors import ClientError, CommitFailed
from respool.client.messages.library import KafkaException, TopicPartition, log
from respool.client.messages.message import Place

_BEGIN_AGAIN_SECONDS = 1.0


class GroupCommits:
    def __init__(
        self, kafka: Any, *, every_ms: int, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._kafka = kafka
        self._every_s = every_ms / 1000
        self._now = now
        self._committed_at = self._now()
        # The latest time to commit the start offsets of a new group.
        self._write_beginning_at = math.inf
        # Partitions for which a new group has start offsets, but which librdkafka does not read yet.
        self._unstarted: set[Place] = set()
        self.progress = HandledUpTo()

    @property
    def is_due(self) -> bool:
        """True if the next periodic commit is due."""
        return self._now() - self._committed_at >= self._every_s

    def write(self, offsets: Mapping[Place, int]) -> None:
        """
        Raises:
            KafkaException: the outcome of some or all commits is unknown.
        """
        if not offsets:
            return
        for told in self._kafka.commit(offsets=_as_library_offsets(offsets), asynchronous=False):
            if told.error is not None:
                raise KafkaException(told.error)
        self.progress.on_committed(offsets)

    def write_done(self) -> None:
        """Commit everything that is done; transient failures are retried with the next commit.

        Raises:
            CommitFailed, Fenced: a permanent error.
        """
        self._committed_at = self._now()
        try:
            self.write(self.progress.to_commit())
        except KafkaException as error:
            if error.args[0].code() not in library.PASSING | library.REBALANCED:
                raise commit_failed(error) from error
            log.info("a commit is tried again later: %s", library.reason(error))

    # -- start offsets of a new group

    def begin(self, offsets: Mapping[Place, int]) -> None:
        """Record a new group's start offsets. They are committed asynchronously once reading has begun.

        During a rebalance, brokers answer a member's commit after its JoinGroup, which waits for all other members to
        join: waiting for the commit here would mean waiting for the slowest member. librdkafka would wait as well: it
        does not start to read a partition while a commit is in flight. A partition without a leader delays the commit
        of the others by at most a second.
        """
        self.progress.on_begun(offsets)
        self._unstarted |= offsets.keys()
        self._write_beginning_at = self._now() + _BEGIN_AGAIN_SECONDS

    @property
    def unstarted(self) -> frozenset[Place]:
        """Partitions for which `on_started` must be called."""
        return frozenset(self._unstarted)

    def on_started(self, places: Iterable[Place]) -> None:
        """Note that librdkafka now reads these partitions."""
        self._unstarted.difference_update(places)
        if not self._unstarted:
            self._write_beginning()

    def write_beginning_if_due(self) -> None:
        if self._now() >= self._write_beginning_at:
            self._write_beginning()

    def on_told(self, error: Any, partitions: list[Any]) -> None:
        """Handle the result of an asynchronous commit."""
        for one in partitions:
            place, failure = (one.topic, one.partition), error or one.error
            if failure is None:
                self.progress.on_committed({place: one.offset})
            elif place in self.progress.begun:
                self._beginning_not_written(failure)

    def _write_beginning(self) -> None:
        begun = self.progress.begun
        self._unstarted.clear()
        self._write_beginning_at = math.inf
        if begun:
            try:
                self._kafka.commit(offsets=_as_library_offsets(begun), asynchronous=True)
            except KafkaException as error:
                self._beginning_not_written(error)

    def _beginning_not_written(self, why: object) -> None:
        log.info("where the group begins is written down later: %s", why)
        self._write_beginning_at = self._now() + _BEGIN_AGAIN_SECONDS


def commit_failed(error: Any) -> ClientError:
    if library.is_fencing(error.args[0]):
        return library.fenced("a consumer cannot commit", error)
    return CommitFailed(
        f"the group's offsets were not committed: {library.reason(error)}. What was read since the last commit"
        " may be redelivered"
    )


def _as_library_offsets(offsets: Mapping[Place, int]) -> list[Any]:
    return [TopicPartition(*place, offset) for place, offset in offsets.items()]


class HandledUpTo:
    """A consumer's progress in each partition: returned, done, committed. Pure.

        begun ───────────────────────────────────────┬──commit──> committed
        returned ─────> in hand ──next poll───────> done

    Every offset is the one after the last message, as Kafka commits it. Invariant: a revoked partition is forgotten, so
    that nothing is committed for another member's partition.
    """

    def __init__(self) -> None:
        self._in_hand: dict[Place, int] = {}
        self._done: dict[Place, int] = {}
        # A new group's start offsets, committed asynchronously.
        self._begun: dict[Place, int] = {}
        # Lowers offsets beyond messages that failed and are not safe elsewhere yet.
        self.limited: Callable[[dict[Place, int]], dict[Place, int]] = lambda offsets: offsets

    def on_handed(self, place: Place, offset: int) -> None:
        self._in_hand[place] = offset + 1

    def on_done(self) -> None:
        """Mark all returned messages as done."""
        if self._in_hand:
            self._done |= self._in_hand
            self._in_hand = {}

    def on_done_up_to(self, place: Place, offset: int) -> None:
        """Mark everything of this partition up to and including this offset as done."""
        next_offset = offset + 1
        self._done[place] = next_offset
        if self._in_hand.get(place, next_offset + 1) <= next_offset:
            self._in_hand.pop(place)

    def on_begun(self, offsets: Mapping[Place, int]) -> None:
        """Record a new group's start offset."""
        self._begun |= offsets

    @property
    def begun(self) -> Mapping[Place, int]:
        """A new group's start offsets that are not known to be committed."""
        return dict(self._begun)

    def to_commit(self, places: Iterable[Place] | None = None) -> dict[Place, int]:
        """The uncommitted offsets that are done, with any start offsets; for `places` alone if given."""
        if places is None:
            return self.limited(self._begun | self._done) if self._done else {}
        known = self._begun | self._done
        return self.limited({place: known[place] for place in places if place in known})

    def on_committed(self, offsets: Mapping[Place, int]) -> None:
        for place, offset in offsets.items():
            if self._done.get(place) == offset:
                del self._done[place]
            self._begun.pop(place, None)

    def forget(self, places: Iterable[Place]) -> None:
        for place in places:
            self._in_hand.pop(place, None)
            self._done.pop(place, None)
            self._begun.pop(place, None)
