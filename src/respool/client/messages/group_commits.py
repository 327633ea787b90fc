"""What a member of a group has the group write down, and when: its progress, and where a new group began.

What is done and could not be written down stays done, and is written with the next commit.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from respool.client.messages import library
from respool.client.messages.errors import ClientError, CommitFailed
from respool.client.messages.library import KafkaException, TopicPartition, log
from respool.client.messages.message import Place
from respool.client.messages.progress import Progress

_BEGIN_AGAIN_SECONDS = 1.0


class GroupCommits:
    def __init__(
        self, kafka: Any, *, every_ms: int, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._kafka = kafka
        self._every_s = every_ms / 1000
        self._now = now
        self._committed_at = self._now()
        # When the place where a new group began is to be written down, at the latest.
        self._write_beginning_at = math.inf
        # Places where a new group begins and that librdkafka does not read yet.
        self._unstarted: set[Place] = set()
        self.progress = Progress()

    @property
    def is_due(self) -> bool:
        """It is time for those that nobody asks for."""
        return self._now() - self._committed_at >= self._every_s

    def write(self, offsets: Mapping[Place, int]) -> None:
        """
        Raises:
            KafkaException: of some or all of it, nobody knows whether it is committed.
        """
        if not offsets:
            return
        for told in self._kafka.commit(offsets=_as_wish(offsets), asynchronous=False):
            if told.error is not None:
                raise KafkaException(told.error)
        self.progress.on_committed(offsets)

    def write_done(self) -> None:
        """Everything that is done, as far as that is possible now; what is not is tried again.

        Raises:
            CommitFailed, Fenced: trying again would not help.
        """
        self._committed_at = self._now()
        try:
            self.write(self.progress.to_commit())
        except KafkaException as error:
            if error.args[0].code() not in library.PASSING | library.REBALANCED:
                raise commit_failed(error) from error
            log.info("a commit is tried again later: %s", library.reason(error))

    # -- where a new group begins

    def begin(self, offsets: Mapping[Place, int]) -> None:
        """A new group's first offsets. They are written down once they are read, and nobody waits for it.

        While the group is dealt anew, brokers answer a member's commit after its joining, and that when all others have
        joined: who waited here would wait for the slowest of them. So would librdkafka: it starts to read no place
        while a commit is on its way. A place without a leader holds up the others' commit for a second.
        """
        self.progress.on_begun(offsets)
        self._unstarted |= offsets.keys()
        self._write_beginning_at = self._now() + _BEGIN_AGAIN_SECONDS

    @property
    def unstarted(self) -> frozenset[Place]:
        """Places that begin, for which `on_started` is to be called."""
        return frozenset(self._unstarted)

    def on_started(self, places: Iterable[Place]) -> None:
        """librdkafka reads these places."""
        self._unstarted.difference_update(places)
        if not self._unstarted:
            self._write_beginning()

    def write_beginning_if_due(self) -> None:
        if self._now() >= self._write_beginning_at:
            self._write_beginning()

    def on_told(self, error: Any, partitions: list[Any]) -> None:
        """What became of a commit that nobody waited for."""
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
                self._kafka.commit(offsets=_as_wish(begun), asynchronous=True)
            except KafkaException as error:
                self._beginning_not_written(error)

    def _beginning_not_written(self, why: object) -> None:
        log.info("where the group begins is written down later: %s", why)
        self._write_beginning_at = self._now() + _BEGIN_AGAIN_SECONDS


def commit_failed(error: Any) -> ClientError:
    if library.is_fencing(error.args[0]):
        return library.fenced("a consumer cannot commit", error)
    return CommitFailed(
        f"the group's place was not written down: {library.reason(error)}. What was read since the last commit"
        " may come again"
    )


def _as_wish(offsets: Mapping[Place, int]) -> list[Any]:
    return [TopicPartition(*place, offset) for place, offset in offsets.items()]
